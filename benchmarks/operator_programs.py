"""Random programs of two to five operators, views and writes among them, exported with some axes dynamic and compared.

    python benchmarks/operator_programs.py [--count 50] [--seed 0]

Each program is text, drawn line by line: a line stays if eager runs it at the sizes of the example. It is exported with
the axes of its inputs named (the same name for axes of one size, by chance) or fixed, and run at other sizes, 1 and 0
among them, and other numbers. A line with the program tells each one whose answer differs from eager's, and each that
runs where eager refuses; the last line counts. Programs that are refused with an error of this package count as such.
"""

from __future__ import annotations

import argparse
import collections
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from operator_samples import difference, silence
from torch.utils import _pytree as pytree

from exportguard import to_onnx
from exportguard.errors import ExportGuardError

DTYPES = ("float32", "float32", "float32", "float64", "float16", "int64", "int32", "bool", "uint8")
TOLERANCES = {torch.float16: (2e-2, 2e-2), torch.float32: (2e-4, 2e-5), torch.float64: (1e-8, 1e-9)}


def lines_of(section: str) -> list[str]:
    text = Path(__file__).with_name("operator_lines.txt").read_text().split(f"[{section}]\n")[1]
    return text.split("\n\n")[0].strip().splitlines()


_VALUES, _WRITES = lines_of("values"), lines_of("writes")


@dataclass
class Program:
    """Lines over the inputs `x0`, `x1`, …, and what they are named."""

    shapes: list[list[str | int]]
    dtypes: list[str]
    lines: list[str] = field(default_factory=list)
    returned: str = ""

    def text(self) -> str:
        names = ", ".join(f"x{i}" for i in range(len(self.shapes)))
        body = "".join(f"    {line}\n" for line in [*self.lines, f"return {self.returned}"])
        given = "".join(
            f"# x{i}: {dtype} {shape}\n" for i, (dtype, shape) in enumerate(zip(self.dtypes, self.shapes, strict=True))
        )
        return f"{given}def forward(self, {names}):\n{body}"

    def module(self) -> torch.nn.Module:
        scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(compile(self.text(), "<program>", "exec"), scope)
        return type("Program", (torch.nn.Module,), {"forward": scope["forward"]})().eval()

    def inputs(self, sizes: Mapping[str, int], seed: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        shapes = [[sizes.get(size, size) for size in shape] for shape in self.shapes]
        return tuple(
            (torch.randn(shape, generator=generator) * 2).to(getattr(torch, dtype))
            for shape, dtype in zip(shapes, self.dtypes, strict=True)
        )

    def dynamic_shapes(self) -> tuple[dict[int, str] | None, ...]:
        return tuple(
            {axis: size for axis, size in enumerate(shape) if isinstance(size, str)} or None for shape in self.shapes
        )

    def names(self) -> list[str]:
        return sorted({size for shape in self.shapes for size in shape if isinstance(size, str)})


EXAMPLE = {"n": 4, "m": 6, "k": 5}


def drawn(source: random.Random) -> Program:
    """A program that eager runs at the sizes of the example."""
    axes: list[str | int] = ["n", "n", "m", "m", "k", 3, 4, 6, 1]
    shape = [source.choice(axes) for _ in range(source.randint(1, 4))]
    shapes, dtypes = [shape], [source.choice(DTYPES)]
    for _ in range(source.randint(0, 1)):
        kind = source.random()
        other = list(shape) if kind < 0.6 else [1 if source.random() < 0.5 else size for size in shape[-2:]]
        shapes.append(other)
        dtypes.append(dtypes[0] if source.random() < 0.7 else source.choice(DTYPES))
    program = Program(shapes, dtypes)
    names = [f"x{i}" for i in range(len(shapes))]
    wanted, tries = source.randint(2, 5), 0
    while len(program.lines) < wanted and tries < 60:
        tries += 1
        is_write = source.random() < 0.25
        target = names[-1] if source.random() < 0.6 else source.choice(names)
        line = filled(source.choice(_WRITES if is_write else _VALUES), target, source.choice(names), source)
        fresh = f"v{len(program.lines)}"
        attempt = Program(shapes, dtypes, [*program.lines, line if is_write else f"{fresh} = {line}"], names[-1])
        if not is_write:
            attempt.returned = fresh
        if runs(attempt):
            program.lines = attempt.lines
            if not is_write:
                names.append(fresh)
    program.returned = ", ".join(dict.fromkeys([names[-1], source.choice(names)]))
    return program


def filled(template: str, a: str, b: str, source: random.Random) -> str:
    rank = 4
    return template.format(
        a=a, b=b, i=source.randint(-2, rank - 2), j=source.choice((0, 1, -1)), k=source.randint(1, 3),
        m=source.choice((-2, -1, 0, 1, 2)), f=source.choice((0.5, -1.5, 2.0, 0.3, 3)),
        d=f"torch.{source.choice(DTYPES)}",
    )  # fmt: skip


def runs(program: Program) -> bool:
    try:
        outputs = program.module()(*program.inputs(EXAMPLE, 0))
    except Exception:  # torch raises whatever it likes
        return False
    return all(leaf.numel() < 20000 for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor))


def sizes_to_try(names: Sequence[str], source: random.Random) -> Iterator[dict[str, int]]:
    yield dict(EXAMPLE)
    yield dict.fromkeys(names, 1)
    for _ in range(3):
        yield {name: source.choice((1, 2, 3, 7, 8, 12)) for name in names}
    yield {name: source.choice((0, 2, 6)) for name in names}


@dataclass(frozen=True)
class Outcome:
    kind: str  #: "right", "refused", "other", "runs where eager refuses" or "stops"
    text: str = ""


def outcome(program: Program, source: random.Random) -> Outcome:
    """The worst of what becomes of a program at several sizes."""
    module = program.module()
    try:
        model = to_onnx(module, program.inputs(EXAMPLE, 0), dynamic_shapes=program.dynamic_shapes())
    except ExportGuardError as error:
        return Outcome("refused", str(error)[:400])
    found = Outcome("right")
    for number, sizes in enumerate(sizes_to_try(program.names(), source)):
        told = at_sizes(program, module, model, sizes, number)
        if told.kind == "other":
            return told
        if told.kind != "right":
            found = told
    return found


def at_sizes(program: Program, module: torch.nn.Module, model: Any, sizes: dict[str, int], seed: int) -> Outcome:
    inputs = program.inputs(sizes, seed)
    feed = {value.name: x for value, x in zip(model.inputs, inputs, strict=True)} if len(model.inputs) else {}
    try:
        expected = pytree.tree_leaves(module(*[x.clone() for x in inputs]))
    except Exception as error:
        expected, refusal = None, str(error)[:150]
    try:
        got = list(model.run(feed).values())
    except Exception as error:
        if expected is None:
            return Outcome("right")
        return Outcome("stops", f"at {sizes}: {str(error)[-300:]}")
    if expected is None:
        return Outcome("runs where eager refuses", f"at {sizes}: {refusal}")
    for a, b in zip(got, expected, strict=False):
        text = difference(torch.as_tensor(a), b if isinstance(b, torch.Tensor) else torch.tensor(b), TOLERANCES)
        if text:
            return Outcome("other", f"at {sizes}: {text}")
    return Outcome("right")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the next ones count on")
    parser.add_argument("--show", nargs="*", default=("other", "stops", "runs where eager refuses", "fails"))
    arguments = parser.parse_args()
    silence()
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        source = random.Random(seed)
        program = drawn(source)
        try:
            found = outcome(program, source)
        except Exception as error:
            found = Outcome("fails", f"{type(error).__name__}: {str(error)[:400]}")
        counts[found.kind] += 1
        if found.kind in arguments.show:
            print(f"--- {found.kind}, seed {seed}: {found.text}\n{program.text()}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))


if __name__ == "__main__":
    main()
