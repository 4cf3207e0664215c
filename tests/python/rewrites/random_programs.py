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
import functools
import json
import linecache
import logging
import sys
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from program_generator import Generator, Program, Statement
from program_idioms import SIZES
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from exportguard import ExportError, ExportGuardError, RewriteError, to_onnx, torch_export_patches
from exportguard.axes.bound import Kind

#: Rows and scale of the inputs: the first is exported.
CASES = ((3, 1.0), (5, -1.0), (2, 3.0), (1, 0.7), (4, -0.3), (0, 1.0))

#: What torch 2.11 to 2.13 says of a scan over no rows, which runs in onnxruntime.
_SCAN_OF_NOTHING = "select(): index 0 out of range for tensor of size [0"

_TOLD = 50  # programs between two lines of counts


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
    module = types.ModuleType("random_program")
    sys.modules[module.__name__] = module  # where `dataclass` looks for the names of a class
    exec(compile(source, name, "exec"), vars(module))
    model: torch.nn.Module = module.Model()
    return model.eval()


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(outputs)]


def _outputs_of(model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """What a copy of a model returns, with its buffer behind the call at the end."""
    copied = copy.deepcopy(model)
    outputs = _tensors(copied(x.clone()))
    return [*outputs, copied.get_buffer("bias").clone()]


def verdict(source: str, name: str, *, with_onnx: bool) -> Verdict:
    """Exports a program and compares it with eager mode."""
    model = model_of(source, name)
    expected: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
    for x in inputs():
        try:
            expected.append((x, _outputs_of(model, x)))
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
        onnx = to_onnx(model, (example,), dynamic_shapes=({0: "rows"},), rewrite="auto")
        run = lambda x: list(onnx.run({"x": x}).values())  # noqa: E731
        none_told = any(bound.kind == Kind.NONE for axis in onnx.axes for bound in axis.bounds)
        expected = [(x, wanted[:-1]) for x, wanted in expected if x.shape[0] or not none_told]
    else:
        try:
            program = _exported(model, example)
        except ExportGuardError:
            raise
        except Exception as error:
            raise ExportError(f"{type(error).__name__}: {error}") from error
        module = program.module()
        run = functools.partial(_outputs_of, module)
    left = _left_behind(model)
    if left:
        return Verdict("different", left)
    is_fixed = False
    for x, wanted in expected:
        try:
            found = run(x.clone())
        except Exception as error:
            if not with_onnx and _SCAN_OF_NOTHING in str(error):
                continue
            if x.shape[0] != example.shape[0] and _is_about_shapes(error):
                is_fixed = True
                continue
            return Verdict("different", f"rows {x.shape[0]}: {type(error).__name__}: {str(error)[:200]}")
        difference = _difference(found, wanted)
        if difference:
            return Verdict("different", f"rows {x.shape[0]}: {difference}")
    return Verdict("fixed" if is_fixed else "right")


def _left_behind(model: torch.nn.Module) -> str:
    """What an export left in a model that is not as it was."""
    for name in ("last", "cache", "bias"):
        held = getattr(model, name)
        if held is not None and (isinstance(held, FakeTensor) or type(held).__module__.startswith("exportguard")):
            return f"the model holds a {type(held).__name__} in {name}"
    if model.cache is not None or bool((model.bias != torch.tensor([0.5, -0.25, 1.0, 0.0])).any()):
        return "the model is not as it was before the export"
    if model.steps or model.table:
        return "the model keeps what the export counted or put into a table"
    return ""


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
        yield Program(body, program.returned, program.classes)
    names = program.returned.split(", ")
    for k in range(len(names)):
        if len(names) > 1:
            yield Program(program.body, ", ".join([*names[:k], *names[k + 1 :]]), program.classes)


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
    with_onnx = with_onnx or SIZES in program.classes
    found = verdict(program.source(), f"/random/{seed}.py", with_onnx=with_onnx)
    if found.kind == "different" and not with_onnx:  # a test of sizes may stand anywhere: those are proved for a file
        found = verdict(program.source(), f"/random/{seed}.py", with_onnx=True)
    return program, found


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
    """Checks programs, prints how many there are of each kind as it goes, and those that are wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--onnx", type=int, default=10, help="every so many programs in onnxruntime as well")
    parser.add_argument("--show", nargs="*", default=["different", "foreign"], help="kinds that are shrunk and printed")
    parser.add_argument("--results", type=Path, help="a line of JSON for each program; what it has is not done again")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    seeds = range(options.start, options.start + options.count)
    run = _Run(options.onnx, options.show, options.results)
    run.check(seeds)
    return int(any(run.kinds[kind] for kind in ("different", "foreign")))


class _Run:
    """Many programs, one after the other."""

    def __init__(self, onnx: int, show: Sequence[str], results: Path | None) -> None:
        self._onnx = onnx
        self._show = show
        self._results = results
        self._done: set[int] = set()
        self.kinds: Counter[str] = Counter()
        for line in results.read_text().splitlines() if results is not None and results.exists() else ():
            known = json.loads(line)
            self._done.add(known["seed"])
            self.kinds[known["kind"]] += 1

    def check(self, seeds: Sequence[int]) -> None:
        """Checks the programs of the seeds that were not checked before."""
        checked(seeds[0], with_onnx=True)  # imports what an export imports
        start = time.process_time()
        left = [seed for seed in seeds if seed not in self._done]
        for count, seed in enumerate(left, 1):
            self._one(seed)
            if count % _TOLD == 0 or count == len(left):
                sys.stdout.write(f"{count} programs in {time.process_time() - start:.0f} s: {dict(self.kinds)}\n")
                sys.stdout.flush()

    def _one(self, seed: int) -> None:
        with_onnx = seed % self._onnx == 0
        program, found = checked(seed, with_onnx=with_onnx)
        self.kinds[found.kind] += 1
        if found.kind in self._show:
            _print_smallest(seed, program, found, with_onnx=with_onnx)
        if self._results is not None:
            line = {"seed": seed, "kind": found.kind, "text": found.text[:600], "classes": sorted(program.classes)}
            with self._results.open("a") as file:
                file.write(json.dumps(line) + "\n")


def _print_smallest(seed: int, program: Program, found: Verdict, *, with_onnx: bool) -> None:
    small = smallest(program, found.kind, with_onnx=with_onnx)
    again = verdict(small.source(), f"/small/{seed}.py", with_onnx=with_onnx)
    lines = small.source().split("def forward(self, x):\n")[1]
    sys.stdout.write(f"--- seed {seed}: {found.kind}\n{lines}{again.text[:600]}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
