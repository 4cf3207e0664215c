"""The samples that torch tests its operators with, exported, run, and compared with eager: plain and special values.

    python benchmarks/operator_samples.py [--only 'nn.functional.*' svd] [--dtypes float64 int64] [--samples 3]
                                          [--values plain special one] [--part 1/4] [--seed 0]

Each sample becomes a module whose inputs are its tensors. It is exported and converted once, and run in onnxruntime
with the sample's own numbers, then with NaN, infinities, both zeros, subnormal and greatest numbers (the ends of their
range for integers; indices, which are int64, stay) strewn among them, unless eager raises. With `one`, a single number
of an input is NaN or infinite, which shows where a kernel multiplies with zero what eager never reads. One line tells
each sample whose answer differs from eager's; the last one counts. float64 is held to nine digits, which nothing
computed in float32 has.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import itertools
import logging
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils import _pytree as pytree

from exportguard import to_onnx

#: Give no numbers, or other ones at every call.
_WITHOUT_AN_ANSWER = (
    "*empty*", "resize*", "*rand*", "normal*", "bernoulli", "multinomial", "cauchy", "exponential", "geometric",
    "log_normal", "uniform", "*dropout*", "nn.functional.rrelu", "*fractional_max*", "uniform.*", "*svd_lowrank*",
    "*pca_lowrank*",
)  # fmt: skip

_ELEMENTWISE = (UnaryUfuncInfo, BinaryUfuncInfo)

#: Relative and absolute.
Tolerances = Mapping[torch.dtype, tuple[float, float]]  # relative and absolute
TOLERANCES: Tolerances = {
    torch.float16: (5e-3, 5e-3), torch.bfloat16: (3e-2, 3e-2),
    torch.float32: (1e-4, 1e-5), torch.float64: (1e-9, 1e-10),
    torch.complex64: (1e-4, 1e-5), torch.complex128: (1e-9, 1e-10),
}  # fmt: skip


class Sampled(torch.nn.Module):
    """An operator of torch's table whose tensors are the inputs; the rest of the sample stays."""

    def __init__(self, operator: Any, sample: Any) -> None:
        super().__init__()
        self.operator = operator
        self.sample = sample
        self.keywords: dict[str, Any] = {}
        self.leaves, self.spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self.places = [place for place, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [self.leaves[place].detach() for place in self.places]
        for place in self.places:
            self.leaves[place] = None

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        first, arguments, keywords = pytree.tree_unflatten(leaves, self.spec)
        return self.operator(first, *arguments, **keywords, **self.keywords)

    def called_by(self, operator: Any, kind: type[Sampled] | None = None) -> Sampled:
        """The same sample of another form of the operator."""
        return (kind or Sampled)(operator, self.sample)


@dataclass(frozen=True)
class Case:
    name: str
    dtype: torch.dtype
    number: int
    module: Sampled
    is_elementwise: bool

    def __str__(self) -> str:
        sizes = [list(tensor.shape) for tensor in self.module.tensors]
        rest = [leaf for leaf in self.module.leaves if leaf is not None]
        return f"{self.name} #{self.number} {str(self.dtype).removeprefix('torch.')} {sizes} {rest}"


def name_of(operator: Any) -> str:
    return f"{operator.name}.{operator.variant_test_name}" if operator.variant_test_name else str(operator.name)


def of_name(name: str) -> Any:
    """The operator of that name in torch's table."""
    return next(operator for operator in op_db if name_of(operator) == name)


def cases(patterns: Sequence[str], dtypes: Sequence[torch.dtype], most: int, seed: int) -> Iterator[Case]:
    """At most so many samples of each operator and dtype, of different shapes first."""
    for operator in op_db:
        name = name_of(operator)
        if any(fnmatch.fnmatch(operator.name, pattern) for pattern in _WITHOUT_AN_ANSWER):
            continue
        if patterns and not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            continue
        for dtype in dtypes:
            if dtype not in operator.supported_dtypes("cpu"):
                continue
            torch.manual_seed(seed)
            samples = list(itertools.islice(operator.sample_inputs("cpu", dtype, requires_grad=False), 64))
            for number, sample in _of_different_shapes(samples)[:most]:
                sampled = Sampled(operator, sample)
                if all(tensor.layout == torch.strided for tensor in sampled.tensors):  # ONNX has no sparse tensors
                    yield Case(name, dtype, number, sampled, isinstance(operator, _ELEMENTWISE))


def _of_different_shapes(samples: Sequence[Any]) -> list[tuple[int, Any]]:
    seen: set[Any] = set()
    first, later = [], []
    for number, sample in enumerate(samples):
        leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
        shapes = tuple(tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor))
        (later if shapes in seen else first).append((number, sample))
        seen.add(shapes)
    return first + later


def strewn(tensor: torch.Tensor, dtype: torch.dtype, generator: torch.Generator, is_elementwise: bool) -> torch.Tensor:
    """The tensor with a third of its elements replaced by what a dtype has at its ends and around zero; one of another
    dtype than the case's, which may be indices, as it is."""
    if tensor.dtype != dtype or dtype.is_complex or dtype == torch.bool or not tensor.numel():
        return tensor.clone()
    if tensor.dtype.is_floating_point:
        limits = torch.finfo(tensor.dtype)
        special = [math.nan, math.inf, -math.inf, 0.0, -0.0, limits.tiny, limits.tiny / 4, 0.5, -1.0]
        if is_elementwise:  # sums of the greatest depend on the order in which they are taken
            special += [limits.max, limits.min]
    else:
        ends = torch.iinfo(tensor.dtype)
        special = [ends.min, ends.max, 0, 1, ends.max - 1, ends.min + 1]
    chosen = torch.tensor(special, dtype=tensor.dtype)[
        torch.randint(len(special), tensor.shape, generator=generator)
    ]  # fmt: skip
    return torch.where(torch.rand(tensor.shape, generator=generator) < 0.34, chosen, tensor)


def with_one(tensors: Sequence[torch.Tensor], generator: torch.Generator) -> list[torch.Tensor]:
    """Copies of the tensors, of which one has a single NaN or infinite number."""
    copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
    able = [tensor for tensor in copies if tensor.is_floating_point() and tensor.numel()]
    if able:
        chosen = able[int(torch.randint(len(able), (), generator=generator))]
        number = (math.nan, math.inf, -math.inf)[int(torch.randint(3, (), generator=generator))]
        chosen.view(-1)[int(torch.randint(chosen.numel(), (), generator=generator))] = number
    return copies


def only_nan(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with NaN in the place of infinite numbers, and complex numbers as pairs."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return torch.where(tensor.isinf(), math.nan, tensor) if tensor.is_floating_point() else tensor


def tensors_of(outputs: Any) -> list[torch.Tensor]:
    leaves = [leaf for leaf in pytree.tree_leaves(outputs) if leaf is not None]
    return [
        leaf.resolve_conj().resolve_neg() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf) for leaf in leaves
    ]


def fed(model: Any, tensors: Sequence[torch.Tensor]) -> list[Any]:
    """The outputs of a file for these inputs, in order; it takes complex numbers as pairs."""
    given = [torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor for tensor in tensors]
    return list(model.run({value.name: tensor for value, tensor in zip(model.inputs, given, strict=True)}).values())


def difference(got: torch.Tensor, expected: torch.Tensor, tolerances: Tolerances = TOLERANCES) -> str:
    """The first element that differs and both answers; empty where none does. A file has complex numbers as pairs."""
    if expected.is_complex() and not got.is_complex():
        expected = torch.view_as_real(expected.resolve_conj())
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return f"{got.dtype} {tuple(got.shape)}, expected {expected.dtype} {tuple(expected.shape)}"
    relative, absolute = tolerances.get(got.dtype, (0.0, 0.0))
    bad = ~torch.isclose(got, expected, rtol=relative, atol=absolute, equal_nan=True)
    if not bad.any():
        return ""
    at = tuple(bad.nonzero()[0].tolist())
    return f"{got[at].item()} at {list(at)}, expected {expected[at].item()} ({int(bad.sum())} of {bad.numel()})"


class Outcomes:
    """Exports each case once and runs it with its own and with special numbers."""

    def __init__(self, values: Sequence[str], seed: int) -> None:
        self.values = values
        self.generator = torch.Generator().manual_seed(seed)

    def of(self, case: Case) -> Iterator[tuple[str, str]]:
        """A kind of answer, and what there is to say of it, for each kind of values."""
        given = [tensor.clone() for tensor in case.module.tensors]
        try:
            case.module(*[tensor.clone() for tensor in given])
        except Exception:  # a sample that eager refuses has no answer
            return
        try:
            program = torch.export.export(case.module, tuple(given), strict=False)
        except Exception as error:  # torch raises whatever it likes here
            yield "stops in torch.export", str(error).splitlines()[0][:150] if str(error) else type(error).__name__
            return
        try:
            model = to_onnx(program)
        except Exception as error:
            yield "not converted", str(error)[:300]
            return
        for kind in self.values:
            yield from self._compared(case, model, kind)

    def _compared(self, case: Case, model: Any, kind: str) -> Iterator[tuple[str, str]]:
        feed = self._feed(case, kind)
        try:
            expected = tensors_of(case.module(*[tensor.clone() for tensor in feed]))
        except Exception:  # eager refuses these numbers, or its kernel stops at them
            return
        try:
            got = fed(model, feed)
        except Exception as error:
            yield f"stops ({kind})", str(error)[-200:].replace("\n", " ")
            return
        got = [torch.as_tensor(value) for value in got]
        if kind == "one":  # which of inf and NaN comes of an infinite number is open: sums differ in their order
            got, expected = [*map(only_nan, got)], [*map(only_nan, expected)]
        told = [difference(a, b) for a, b in zip(got, expected, strict=False)]
        told = [f"output {place}: {text}" for place, text in enumerate(told) if text]
        yield (f"other ({kind})", told[0]) if told else (f"right ({kind})", "")

    def _feed(self, case: Case, kind: str) -> list[torch.Tensor]:
        tensors = case.module.tensors
        if kind == "one":
            return with_one(tensors, self.generator)
        if kind == "plain":
            return [tensor.clone() for tensor in tensors]
        return [strewn(tensor, case.dtype, self.generator, case.is_elementwise) for tensor in tensors]


def silence() -> None:
    """Only what the command says is printed: refusals are counted, and torch and onnxruntime tell of them as well."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    onnxruntime.set_default_logger_severity(4)


def add_part(parser: argparse.ArgumentParser) -> None:
    """The argument of `part_of`."""
    parser.add_argument("--part", default="1/1", help="K/N: every N-th case, beginning with the K-th")


def part_of(found: Iterable[Case], part: str) -> Iterator[Case]:
    """Every N-th case, beginning with the K-th, for "K/N"."""
    first, step = map(int, part.split("/"))
    return itertools.islice(iter(found), first - 1, None, step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=(), help="names of operators, with wildcards")
    parser.add_argument("--dtypes", nargs="*", default=("float32", "float64", "float16", "int32", "uint8", "bool"))
    parser.add_argument("--samples", type=int, default=2, help="of each operator and dtype")
    parser.add_argument("--values", nargs="*", default=("plain", "special"), choices=("plain", "special", "one"))
    add_part(parser)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    silence()
    dtypes = [getattr(torch, name) for name in arguments.dtypes]
    outcomes = Outcomes(arguments.values, arguments.seed)
    counts: collections.Counter[str] = collections.Counter()
    found = cases(arguments.only, dtypes, arguments.samples, arguments.seed)
    for case in part_of(found, arguments.part):
        for kind, text in outcomes.of(case):
            counts[kind] += 1
            if not kind.startswith("right"):
                print(f"{kind}: {case}: {text}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))


if __name__ == "__main__":
    main()
