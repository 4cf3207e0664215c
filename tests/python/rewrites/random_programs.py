"""Random programs of Python over tensors, exported with `rewrite="auto"` and compared with eager mode.

A program is a tree of statements: assignments, branches, loops, breaks, aliases, views and in-place changes, closures,
`try` blocks, assertions, numbers, lists, dicts, comprehensions. It is right if the exported program gives what eager
mode gives for inputs of several sizes and signs, or if the export is refused with an error of this package.

`python tests/python/rewrites/random_programs.py --count 1000 --start 0` makes and checks as many, shrinks what is wrong
and prints it.
"""

from __future__ import annotations

import argparse
import copy
import linecache
import logging
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from exportguard import ExportError, ExportGuardError, RewriteError, to_onnx, torch_export_patches

_HEAD = """\
import contextlib
import torch


class Box:
    def __init__(self, value, count):
        self.value = value
        self.count = count


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None
        self.register_buffer("bias", torch.tensor([0.5, -0.25, 1.0, 0.0]))

    def forward(self, x):
"""

#: Rows and scale of the inputs: the first is exported.
CASES = ((3, 1.0), (5, -1.0), (2, 3.0), (4, -0.3))


@dataclass
class Statement:
    """A line, or the head of blocks: `if`, `else`; `for`; `try`, `except`."""

    heads: list[str]
    blocks: list[list[Statement]] = field(default_factory=list)

    def lines(self, depth: int) -> Iterator[str]:
        """The source."""
        indent = "    " * depth
        if not self.blocks:
            yield from (f"{indent}{head}" for head in self.heads)
            return
        for head, block in zip(self.heads, self.blocks, strict=True):
            yield f"{indent}{head}"
            yield from (line for statement in block for line in statement.lines(depth + 1))
            if not block:
                yield f"{indent}    pass"


@dataclass
class Program:
    """The statements of `forward` and what it returns."""

    body: list[Statement]
    returned: str

    def source(self) -> str:
        """The module that holds the model."""
        lines = [line for statement in self.body for line in statement.lines(2)]
        return _HEAD + "\n".join([*lines, f"        return {self.returned}"]) + "\n"


class Generator:
    """Makes one program of a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._vectors = ["v", "w"]  # tensors of shape [4]
        self._scalars = ["s"]  # tensors of rank 0
        self._numbers = ["n", "k"]  # Python numbers
        self._lists: list[str] = []
        self._row: list[str] = []
        self._index: list[str] = []
        self._functions: list[str] = []
        self._depth = 0
        self._loops = 0
        self._fresh = 0

    def program(self) -> Program:
        """The program."""
        start = [
            Statement(["v = x[0] * 1.0"]),
            Statement(["w = x.mean(0)"]),
            Statement(["s = x.sum()"]),
            Statement([f"n = {self._pick(['0', '1', '2', '0.5'])}"]),
            Statement([f"k = {self._pick(['1', '3', '2.0'])}"]),
        ]
        body = start + self._block(self._random.randint(2, 5), at_top=True)
        extra = [f"torch.stack({name}).sum(0)" for name in self._lists[:1]]
        return Program(body, ", ".join(["v", "w", "s", "x * n", "k", *extra, *self._results()]))

    def _results(self) -> list[str]:
        chosen = self._random.random()
        if self._lists and chosen < 0.15:
            return [f"len({self._lists[0]})"]
        if self._lists and chosen < 0.3:
            return [self._pick([f"{self._lists[0]}[-1]", f"torch.stack({self._lists[0]}[::-1])"])]
        return []

    def _pick(self, items: list[str]) -> str:
        return self._random.choice(items)

    def _new(self, prefix: str) -> str:
        self._fresh += 1
        return f"{prefix}{self._fresh}"

    # ------------------------------------------------------------------------------------------ expressions

    def _vector(self) -> str:
        v = self._pick(self._vectors + self._row)
        kinds = [
            v,
            f"{v} + {self._scalar_or_number()}",
            f"{v} * {self._scalar_or_number()}",
            f"{v} - {self._pick(self._vectors + self._row)}",
            f"torch.tanh({v})",
            f"{v}.clone()",
            f"{v} + self.bias",
            f"torch.where({v} > 0, {v}, {self._pick(self._vectors)})",
            f"({v} if {self._test()} else {self._pick(self._vectors)} * 2)",
            f"max({v}.sum(), {self._pick(self._scalars)}) + {v}",
            f"(self.bias if {self._test()} else {v})",
        ]
        if self._index:
            kinds += [f"x[{self._pick(self._index)}]", f"x[-{self._pick(self._index)} - 1]"]
        if self._functions:
            kinds += [f"{self._pick(self._functions)}()", f"{self._pick(self._functions)}() + {v}"]
        return self._pick(kinds)

    def _scalar(self) -> str:
        v = self._pick(self._vectors + self._row)
        s = self._pick(self._scalars)
        kinds = [
            f"{v}.sum()",
            f"{v}.max()",
            f"{s} * 0.5",
            f"{s} + {self._number()}",
            f"{v}[1] + {s}",
            f"({s} or {v}.sum())",
            f"({s} > 0 and {s} + 1.0) * 1.0",
            f"min({s}, {v}.mean())",
            "sum(r.sum() for r in x)",
            "max(r.max() for r in x)",
        ]
        return self._pick(kinds)

    def _number(self) -> str:
        n = self._pick(self._numbers + self._index)
        return self._pick(
            [n, f"{n} + 1", f"{n} * 2", f"{n} - 1", f"{n} // 2", f"{n} % 3", "2", "0.5", f"({n} + 1) / 2"]
        )

    def _scalar_or_number(self) -> str:
        return self._pick([*self._scalars, *self._numbers, self._number(), "0.5"])

    def _test(self) -> str:
        v, s = self._pick(self._vectors + self._row), self._pick(self._scalars)
        kinds = [
            f"{s} > 0",
            f"{v}.sum() > 0.5",
            f"{v}.max() > {v}.mean() * 2",
            f"{s} > 0 and {v}[0] < 1",
            f"not {v}.sum() > 0",
            f"{s} < 1 or {v}.min() < -0.5",
            f"0 < {s} < 4",
            f"{self._pick(self._numbers)} > 1",
            f"bool({v}[2] > 0)",
            "any(r.sum() > 1 for r in x)",
            "all((r < 2).all() for r in x)",
            "x.dim() == 2",
        ]
        return self._pick(kinds)

    # ------------------------------------------------------------------------------------------ statements

    def _block(self, count: int, *, at_top: bool = False) -> list[Statement]:
        return [self._statement(at_top=at_top) for _ in range(count)]

    def _statement(self, *, at_top: bool = False) -> Statement:
        simple: list[Callable[[], Statement]] = [
            lambda: Statement([f"{self._pick(self._vectors)} = {self._vector()}"]),
            lambda: Statement([f"{self._pick(self._vectors)} = {self._vector()}"]),
            lambda: Statement([f"{self._pick(self._scalars)} = {self._scalar()}"]),
            lambda: Statement([f"{self._pick(self._numbers)} = {self._number()}"]),
            lambda: Statement([f"{self._pick(self._numbers)} += {self._pick(['1', '2', '0.5'])}"]),
            lambda: Statement([f"n, k = k, n + {self._pick(['1', 'k'])}"]),
            self._in_place,
            self._in_place,
            self._attribute,
            self._assertion,
        ]
        if self._lists:
            simple.append(lambda: Statement([f"{self._pick(self._lists)}.append({self._vector()})"]))
        if self._loops:
            simple += [lambda: Statement([f"if {self._test()}:"], [[Statement([self._pick(["break", "continue"])])]])]
        compound = [self._if, self._if, self._for, self._for, self._while, self._try, self._with]
        if at_top:
            simple += [self._closure, self._closure, self._make_list, self._dict, self._box, self._comprehension]
        if self._depth >= 2 or self._random.random() < 0.5:
            return self._random.choice(simple)()
        return self._nested(self._random.choice(compound))

    def _nested(self, make: Callable[[], Statement]) -> Statement:
        self._depth += 1
        known = [list(names) for names in (self._row, self._index)]
        try:
            return make()
        finally:
            self._row, self._index = known
            self._depth -= 1

    def _in_place(self) -> Statement:
        v = self._pick(self._vectors)
        kinds = [
            f"{v} += {self._pick([*self._scalars, '1.0', *self._vectors])}",
            f"{v}.mul_(0.5)",
            f"{v}[{self._random.randint(0, 3)}] = {self._pick([*self._scalars, '2.0'])}",
            f"{v}[1:3] += 1.0",
            "v = w",
            "w = v",
            "v = w.view(4)",
        ]
        return Statement([self._pick(kinds)])

    def _attribute(self) -> Statement:
        kind = self._random.random()
        if kind < 0.4:
            return Statement(
                [f"self.last = {self._pick(self._vectors)}", f"{self._pick(self._vectors)} = self.last * 0.5"]
            )
        return Statement([f"self.bias {self._pick(['+=', '*='])} {self._pick(['0.5', *self._scalars])} * 0.1"])

    def _assertion(self) -> Statement:
        return Statement([f"assert {self._test()}, 'no'"])

    def _if(self) -> Statement:
        size = self._random.randint(1, 3)
        if self._random.random() < 0.4:
            return Statement([f"if {self._test()}:"], [self._block(size)])
        heads = [f"if {self._test()}:", "else:"]
        blocks = [self._block(size), self._block(self._random.randint(1, 2))]
        if self._random.random() < 0.15:
            blocks[1] = [Statement(["raise ValueError('no')"])]
        if self._random.random() < 0.08:
            blocks[0].append(Statement(["return v, w, s, x * n, k"]))
        return Statement(heads, blocks)

    def _for(self) -> Statement:
        row, index = self._new("r"), self._new("i")
        heads = {
            f"for {row} in x:": (row, None),
            f"for {index}, {row} in enumerate(x):": (row, index),
            f"for {index} in range(x.shape[0]):": (None, index),
            f"for {index} in range(1, len(x)):": (None, index),
            f"for {row} in reversed(x):": (row, None),
            f"for {row}, _ in zip(x, x * 2):": (row, None),
            f"for {index} in range(3):": (None, None),
        }
        head = self._pick([*heads])
        found = heads[head]
        self._row += [name for name in found[:1] if name]
        self._index += [name for name in found[1:] if name]
        self._loops += 1
        body = self._block(self._random.randint(1, 3))
        self._loops -= 1
        if self._random.random() < 0.1:
            return Statement([head, "else:"], [body, self._block(1)])
        return Statement([head], [body])

    def _while(self) -> Statement:
        count, s = self._new("c"), self._pick(self._scalars)
        test = self._pick([f"{count} < 3", f"{s} < 3 and {count} < 4", f"v.sum() < 2 and {count} < 5"])
        self._loops += 1
        body = [Statement([f"{count} += 1"]), *self._block(self._random.randint(1, 2))]
        self._loops -= 1
        loop = Statement([f"while {test}:"], [body])
        return Statement(["if True:"], [[Statement([f"{count} = 0"]), loop]])

    def _try(self) -> Statement:
        caught = self._pick(["ValueError", "AssertionError", "(ValueError, AssertionError)", "KeyError", "Exception"])
        heads, blocks = ["try:", f"except {caught}:"], [self._block(2), self._block(1)]
        if self._random.random() < 0.3:
            heads, blocks = [*heads, "else:"], [*blocks, self._block(1)]
        if self._random.random() < 0.3:
            heads, blocks = [*heads, "finally:"], [*blocks, [Statement(["w = w + 1.0"])]]
        return Statement(heads, blocks)

    def _with(self) -> Statement:
        manager = self._pick(
            ["contextlib.suppress(ValueError, AssertionError)", "torch.no_grad()", "contextlib.nullcontext()"]
        )
        return Statement([f"with {manager}:"], [self._block(2)])

    def _closure(self) -> Statement:
        name = self._new("f")
        body = self._vector()
        self._functions.append(name)
        if self._random.random() < 0.5:
            return Statement([f"{name} = lambda: {body}"])
        return Statement([f"def {name}():"], [[Statement([f"return {body}"])]])

    def _make_list(self) -> Statement:
        name = self._new("outs")
        self._lists.append(name)
        return Statement([f"{name} = [{self._pick(['v', 'w * 2', 'x[0]'])}]"])

    def _dict(self) -> Statement:
        name = self._new("d")
        row = self._new("r")
        update = f"{name}['h'] = {name}['h'] * 0.5 + {row}"
        body = [Statement([self._pick([update, f"{name}['h'] += {row}"])]), Statement([f"{name}['n'] += 1"])]
        loop = Statement([f"for {row} in x:"], [body])
        last = Statement([f"v = {name}['h'] * {name}['n']"])
        return Statement(["if True:"], [[Statement([f"{name} = {{'h': v, 'n': 0}}"]), loop, last]])

    def _box(self) -> Statement:
        name = self._new("b")
        row = self._new("r")
        step = self._pick(
            [f"{name} = Box({name}.value + {row}, {name}.count + 1)", f"{name}.value = {name}.value * 0.5 + {row}"]
        )
        loop = Statement([f"for {row} in x:"], [[Statement([step])]])
        return Statement(
            ["if True:"], [[Statement([f"{name} = Box(w, 1)"]), loop, Statement([f"w = {name}.value * {name}.count"])]]
        )

    def _comprehension(self) -> Statement:
        name = self._new("outs")
        self._lists.append(name)
        kinds = [
            "[r * 2 for r in x]",
            "[r + v for r in x]",
            "[r for r in x if r.sum() > -100]",
            "[v] + [r for r in x if r.sum() > 1]",
        ]
        return Statement([f"{name} = {self._pick(kinds)}"])


# -------------------------------------------------------------------------------------------------- checking


@dataclass(frozen=True)
class Verdict:
    """What became of a program: "right", "refused", "skipped", or what is wrong."""

    kind: str
    text: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.kind in ("different", "foreign")


def inputs() -> list[torch.Tensor]:
    """The inputs of every program, the exported one first."""
    made = []
    for rows, scale in CASES:
        values = torch.linspace(0.1, 1.0, rows * 4).reshape(rows, 4) * scale
        made.append(values + torch.sin(torch.arange(rows * 4.0)).reshape(rows, 4) * 0.3)
    return made


def model_of(source: str, name: str) -> torch.nn.Module:
    """The model that a source defines, so that its source can be found again."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "random_program"}
    exec(compile(source, name, "exec"), space)
    model: torch.nn.Module = space["Model"]()
    return model.eval()


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(outputs)]


def verdict(source: str, name: str, *, with_onnx: bool) -> Verdict:
    """Exports a program and compares it with eager mode."""
    model = model_of(source, name)
    expected: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
    for x in inputs():
        try:
            expected.append((x, _tensors(copy.deepcopy(model)(x.clone()))))
        except Exception:
            continue
    if not expected or expected[0][0].shape != inputs()[0].shape:
        return Verdict("skipped")
    try:
        return _compared(model, expected, with_onnx=with_onnx)
    except RewriteError as error:
        return Verdict("refused", str(error).splitlines()[-1])
    except ExportError as error:
        return Verdict("stopped", str(error))
    except ExportGuardError as error:
        return Verdict("foreign" if "fake" in str(error) else "refused", str(error))


def _compared(model: torch.nn.Module, expected: Any, *, with_onnx: bool) -> Verdict:
    example = inputs()[0]
    if with_onnx:
        onnx = to_onnx(copy.deepcopy(model), (example,), dynamic_shapes=({0: "rows"},), rewrite="auto")
        run = lambda x: list(onnx.run({"x": x}).values())  # noqa: E731
    else:
        try:
            program = _exported(copy.deepcopy(model), example)
        except ExportGuardError:
            raise
        except Exception as error:
            raise ExportError(f"{type(error).__name__}: {error}") from error
        module = program.module()
        run = lambda x: _tensors(copy.deepcopy(module)(x))  # noqa: E731
    is_fixed = False
    for x, wanted in expected:
        try:
            found = run(x.clone())
        except Exception as error:
            if x.shape[0] != example.shape[0] and _is_about_shapes(error):
                is_fixed = True
                continue
            return Verdict("different", f"rows {x.shape[0]}: {type(error).__name__}: {str(error)[:200]}")
        difference = _difference(found, wanted)
        if difference:
            return Verdict("different", f"rows {x.shape[0]}: {difference}")
    return Verdict("fixed" if is_fixed else "right")


def _exported(model: torch.nn.Module, example: torch.Tensor) -> torch.export.ExportedProgram:
    with torch_export_patches(rewrite="auto"):
        return torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)


def _is_about_shapes(error: Exception) -> bool:
    return any(word in str(error) for word in ("to be equal to", "invalid dimensions", "Guard failed", "shape"))


def _difference(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> str:
    if len(found) < len(wanted):
        return f"{len(found)} outputs instead of {len(wanted)}"
    for place, (a, b) in enumerate(zip(found, wanted, strict=False)):
        if isinstance(a, FakeTensor):
            return f"output {place} is a fake tensor"
        if a.shape != b.shape:
            return f"output {place} has the shape {tuple(a.shape)} instead of {tuple(b.shape)}"
        if b.dim() and a.dtype != b.dtype:
            return f"output {place} has the dtype {a.dtype} instead of {b.dtype}"
        if not torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-3, equal_nan=True):
            return f"output {place} is {a.flatten()[:4].tolist()} instead of {b.flatten()[:4].tolist()}"
    return ""


# -------------------------------------------------------------------------------------------------- shrinking


def shrunk(program: Program, is_wrong: Callable[[Program], bool]) -> Program:
    """The program with every statement left out that is not needed for it to be wrong."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(program):
            if is_wrong(smaller):
                program, changed = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    for body in _smaller_blocks(program.body):
        yield Program(body, program.returned)
    names = program.returned.split(", ")
    for k in range(len(names)):
        if len(names) > 1:
            yield Program(program.body, ", ".join([*names[:k], *names[k + 1 :]]))


def _smaller_blocks(block: list[Statement]) -> Iterator[list[Statement]]:
    for k, statement in enumerate(block):
        before, after = block[:k], block[k + 1 :]
        yield [*before, *after]
        for inner in statement.blocks:
            yield [*before, *inner, *after]
        for j, inner in enumerate(statement.blocks):
            for smaller in _smaller_blocks(inner):
                blocks = [*statement.blocks[:j], smaller, *statement.blocks[j + 1 :]]
                yield [*before, Statement(statement.heads, blocks), *after]


def checked(seed: int, *, with_onnx: bool) -> tuple[Program, Verdict]:
    """The program of a seed and what became of it."""
    program = Generator(seed).program()
    return program, verdict(program.source(), f"/random/{seed}.py", with_onnx=with_onnx)


def smallest(program: Program, kind: str, *, with_onnx: bool) -> Program:
    """The smallest program that is wrong in the same way."""
    count = iter(range(10**9))

    def is_wrong(candidate: Program) -> bool:
        try:
            return verdict(candidate.source(), f"/shrunk/{next(count)}.py", with_onnx=with_onnx).kind == kind
        except Exception:
            return False

    return shrunk(program, is_wrong)


def main() -> int:
    """Checks programs and prints those that are wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--onnx", type=int, default=10, help="every so many programs in onnxruntime as well")
    parser.add_argument("--show", nargs="*", default=["different", "foreign"], help="kinds that are shrunk and printed")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    kinds: Counter[str] = Counter()
    start = time.process_time()
    for seed in range(options.start, options.start + options.count):
        with_onnx = seed % options.onnx == 0
        program, found = checked(seed, with_onnx=with_onnx)
        kinds[found.kind] += 1
        if found.kind in options.show:
            small = smallest(program, found.kind, with_onnx=with_onnx)
            again = verdict(small.source(), f"/small/{seed}.py", with_onnx=with_onnx)
            lines = small.source().split("def forward(self, x):\n")[1]
            sys.stdout.write(f"--- seed {seed}: {found.kind}\n{lines}{again.text[:600]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{dict(kinds)} in {time.process_time() - start:.0f} s\n")
    return int(any(kinds[kind] for kind in ("different", "foreign")))


if __name__ == "__main__":
    sys.exit(main())
