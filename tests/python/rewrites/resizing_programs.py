"""Random programs with loops whose tensors have another size in each step: queues, filters, growing results, halving.

`python tests/python/rewrites/resizing_programs.py --count 200 --seed 0` exports each and compares it with eager mode,
in onnxruntime, at sizes from 0 to 9 and for several signs; a program is right, refused with a reason, or wrong.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module
from torch.utils import _pytree as pytree

from exportguard import ExportGuardError, to_onnx

_TESTS = (
    *("a.shape[0] > {few}", "len(a) > {few}", "a.numel()", "a.numel() > {few}", "not a.shape[0] <= {few}"),
    *("t < {few}", "a.sum() < 9", "s.sum() < {few}", "a.shape[0] != {few}", "b.shape[0] < {many}", "not done"),
)
_SHRINKS = (
    *("a = a[1:]", "a = a[:-1]", "a = a[a.sum(1) > t - {few}]", "a = a[(a[:, 0] > t - 1).nonzero()[:, 0]]"),
    *("a = a[a.shape[0] // 2:]", "a = a[::2]", "a = a[1:][a[1:, 1] < {few}]", "a = a[: n + 1]", "a = a[:0]"),
    *(
        "a = a[0::2] * 2 + a[: (a.shape[0] + 1) // 2]",
        "a = a[torch.arange(a.shape[0]) != n]",
        "a = a[a[:, 2].argsort()][1:]",
    ),
)
_GROWTHS = (
    *("a = torch.cat([a, a[:1]])", "b = torch.cat([b, a[-1:] * 2])", "b = torch.cat([a, b])[:{many}]"),
    *("b = torch.cat([b, s[None]], 0)", "a = torch.cat([a, s[None], a[:1]])", "b = torch.cat([b, b, a[:1]])[:{many}]"),
    *("w = torch.cat([w, a.sum(0, keepdim=True).T], 1)", "w = torch.cat([w[:, 1:], w, a[:1].T], 1)[:, :{many}]"),
)
_OTHERS = (
    *(
        "s = s + a.sum(0)",
        "s = s * 0.5 + b.sum(0)",
        "t = t + 1",
        "t = t + a.shape[0] * 0.25",
        "m = a.shape[0]",
        "s = s + w.sum(1)",
    ),
    *(
        "m = m + b.shape[0]",
        "outs.append(a.sum(0))",
        "outs.append(a.sum(0) * m)",
        "done = a.sum() > {few}",
        "h = b[:{few}] + 1",
    ),
    *("s = s - h.sum(0)", "sizes.append(a.shape[0])", "c = a; a = c + 1"),
)
_FORKS = (
    "a.sum() > {few}",
    "a.shape[0] > {few}",
    "s[0] > t",
    "a.shape[0] % 2",
    "n > {few}",
    "b.shape[0] > a.shape[0]",
    "a.numel() and a[0, 0] > 0",
)
_LEAVES = ("break", "continue")


class _Writer:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lines: list[str] = []
        self._loops = 0  # that are open

    def _filled(self, texts: tuple[str, ...]) -> str:
        text = self._random.choice(texts)
        return text.format(few=self._random.randint(0, 3), many=self._random.randint(4, 9))

    def _add(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def _statement(self, depth: int) -> None:
        kind = self._random.random()
        if kind < 0.18 and depth < 5:
            self._add(depth, f"if {self._filled(_FORKS)}:")
            self._block(depth + 1, self._random.randint(1, 2))
            if self._random.random() < 0.5:
                self._add(depth, "else:")
                self._block(depth + 1, 1)
        elif kind < 0.24 and self._loops:
            self._add(depth, f"if {self._filled(_FORKS)}:")
            self._add(depth + 1, self._random.choice(_LEAVES))
        else:
            chosen = self._random.choice((_SHRINKS, _SHRINKS, _GROWTHS, _OTHERS, _OTHERS))
            self._add(depth, self._filled(chosen))

    def _block(self, depth: int, count: int) -> None:
        for _ in range(count):
            self._statement(depth)

    def _loop(self, depth: int) -> None:
        kind = self._random.random()
        counter = f"n{depth}" if depth > 2 else "n"
        if kind < 0.65:
            joined = f" {self._random.choice(('and', 'or'))} ".join(
                self._filled(_TESTS) for _ in range(self._random.choice((1, 1, 2)))
            )
            self._add(depth, f"{counter} = 0")
            self._add(depth, f"while ({joined}) and {counter} < {self._random.randint(3, 7)}:")
            self._add(depth + 1, f"{counter} += 1")
        elif kind < 0.85:
            self._add(depth, "for row in x:")
            self._add(
                depth + 1, self._random.choice(("s = s + row", "b = torch.cat([b, row[None]])", "t = t + row[1]"))
            )
        else:
            self._add(depth, "for i in range(x.shape[0]):")
            self._add(depth + 1, self._random.choice(("s = s + x[i]", "b = torch.cat([b, x[i][None]])", "m = m + i")))
        self._loops += 1
        self._block(depth + 1, self._random.randint(1, 4))
        if depth == 2 and self._random.random() < 0.12:
            self._loop(depth + 1)
        self._loops -= 1

    def source(self) -> str:
        self._add(0, "class Program(Module):")
        self._add(1, "def forward(self, x):")
        starts = (
            *("s = torch.zeros(4)", "t = torch.zeros(())", "n = 0", "m = 0", "outs = []", "sizes = []", "h = x[:0]"),
            *("done = torch.zeros((), dtype=torch.bool)", "w = torch.zeros(4, 1)"),
            *(f"a = {self._random.choice(('x', 'x[1:]', 'x * 1.5', 'x[x.sum(1) > 0]', 'torch.cat([x, x])'))}",),
            *(f"b = {self._random.choice(('x[:0]', 'x[:1]', 'torch.zeros(1, 4)', 'x', 'torch.zeros(0, 4)'))}",),
        )
        for start in starts:
            self._add(2, start)
        for _ in range(self._random.choice((1, 1, 1, 2))):
            self._loop(2)
            self._block(2, self._random.randint(0, 1))
        self._add(2, "for row in outs:")
        self._add(3, "s = s + row")
        self._add(2, "for size in sizes:")
        self._add(3, "t = t * 0.5 + size")
        self._add(2, "return a, b, s, t, n, m, w, h.sum(0), b.shape[0] + a.shape[0]")
        return "\n".join(self._lines) + "\n"


def program(seed: int) -> tuple[str, type[Module]]:
    """The source of a random program, and its class; torch reads the source in a file."""
    source = "import torch\nfrom torch.nn import Module\n\n\n" + _Writer(seed).source()
    folder = Path(tempfile.mkdtemp())
    path = folder / f"program_{seed}.py"
    path.write_text(source, encoding="utf-8")
    names: dict[str, Any] = {"__name__": f"program_{seed}", "__file__": str(path)}
    exec(compile(source, str(path), "exec"), names)
    return source, names["Program"]


def calls(seed: int) -> list[torch.Tensor]:
    """Inputs of several sizes; the first one is exported."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, 4, generator=generator) for rows in (4, 1, 0, 2, 3, 5, 9, 4, 6)]


def _leaves(outputs: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(leaf).double() for leaf in pytree.tree_leaves(outputs)]


def _is_same(got: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return len(got) == len(expected) and all(
        a.shape == b.shape and torch.allclose(a, b, atol=1e-3, rtol=1e-3, equal_nan=True)
        for a, b in zip(got, expected, strict=True)
    )


def outcome(seed: int) -> str:
    """`right`, `refused: …`, `error: …` or `wrong: …` for a program."""
    _, made = program(seed)
    model, inputs = made().eval(), calls(seed)
    try:
        model(inputs[0].clone())
    except Exception as error:
        return f"not a program: {error}"
    try:
        onnx = to_onnx(model, (inputs[0].clone(),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    except ExportGuardError as error:
        return f"refused: {error}"
    except Exception as error:
        return f"error: {type(error).__name__}: {error}"
    for x in inputs:
        try:
            expected = _leaves(model(x.clone()))
        except Exception:  # what eager mode refuses
            continue
        try:
            got = _leaves(list(onnx.run({onnx.inputs[0].name: x}).values()))
        except Exception as error:
            return f"wrong: {len(x)} rows: {type(error).__name__}: {error}"
        if not _is_same(got, expected):
            return f"wrong: {len(x)} rows: {[tuple(t.shape) for t in got]}, not {[tuple(t.shape) for t in expected]}"
    return "right"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        result = outcome(seed)
        found[result.split(":")[0]] += 1
        if not result.startswith(("right", "not a")):
            print(seed, result.replace("\n", " | ")[:400], flush=True)
    print(dict(found))


if __name__ == "__main__":
    main()
