"""The comparison on one set of inputs: of what the original returns, and of what it leaves where it writes in place."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ..axes.rounding import coarser
from ..cache_names import output_name
from ..errors import REFUSALS
from ..inputs import Leaf
from ..models import ModelCase
from ..models.input_sets import InputSet
from ..models.natural_inputs.search import draws_numbers
from ..runners.evaluator import EvaluatorSession
from ..runners.onnxruntime import OrtSession
from .beside import Ran
from .discrepancies import BLIND, DRAWN, Tolerance, can_tell, compare_outputs, tolerance_for
from .eager_outputs import EagerRun, given_leaves, joined_rows, run_on
from .exactness import exact_leaves, is_as_exact
from .set_result import SetResult
from .ties import lowest_index_first

#: What a converter calls an output that holds what is written into an input, a buffer or a weight.
_WRITTEN = "_mutated"


@dataclass(frozen=True)
class Converted:
    """The converted model, and which leaves of the original's inputs and outputs it has."""

    case: ModelCase
    session: OrtSession | EvaluatorSession
    takes: Sequence[bool]
    returns: Sequence[bool]
    computed_in: Sequence[torch.dtype | None]  # of those that it returns
    wide: frozenset[str] = frozenset()  # inputs and outputs that are float32 in the file alone


@dataclass(frozen=True)
class Record:
    """What the runner was given, and what came of it, for who asks another runner."""

    calls: list[dict[str, torch.Tensor]]
    runs: list[Ran]


def compare(converted: Converted, input_set: InputSet, expected: EagerRun, run: Record) -> SetResult:
    """The converted model beside a run of the original on the inputs; what the runner raises stands in the result."""
    values = [leaf.value for leaf in _returned(converted, expected.leaves) or ()]
    try:
        feeds = feeds_of(converted, input_set)
        run.calls.append(feeds)
        run.runs.append(Ran(name=input_set.name, feeds=feeds, expected=values))
        got = _narrowed(converted, values, converted.session.run(feeds))
    except Exception as error:  # onnxruntime has no common base for its own
        return SetResult(name=input_set.name, sizes=input_set.sizes, error=f"{type(error).__name__}: {error}")
    run.runs[-1] = replace(run.runs[-1], outputs=got)
    result = _against(converted, input_set, expected, got)
    if not result.agrees:
        result = _with_ties_decided(converted, input_set, got, result)
    if not result.agrees and draws_numbers(converted.case.model, converted.case.inputs(input_set.sizes)):
        return replace(result, error=DRAWN)
    return result if result.agrees else _with_exactness_known(converted, input_set, (values, got), result)


def _narrowed(
    converted: Converted, expected: Sequence[torch.Tensor], got: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """What the file returns, as the model returns it: in float32 are numbers that half precision has."""
    named = zip(converted.session.output_names, expected, got, strict=False)
    own = [have.to(want.dtype) if name in converted.wide else have for name, want, have in named]
    return [*own, *got[len(own) :]]


def _with_exactness_known(
    converted: Converted,
    input_set: InputSet,
    answers: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]],
    result: SetResult,
) -> SetResult:
    """The comparison, where what is beyond the tolerance is nothing but the rounding that the original has as well."""
    beyond = [place for place, output in enumerate(result.outputs) if not output.agrees]
    if result.error or any(output.problem for output in result.outputs):
        return result
    try:
        exact = _returned(converted, exact_leaves(converted.case, input_set)) or ()
    except REFUSALS:  # it does not run in float64
        return result
    rows = list(zip([leaf.value for leaf in exact], *answers, strict=False))
    known = len(rows) == len(answers[0]) and all(place < len(rows) and is_as_exact(*rows[place]) for place in beyond)
    return replace(result, as_exact=known)


def _with_ties_decided(
    converted: Converted, input_set: InputSet, got: Sequence[torch.Tensor], result: SetResult
) -> SetResult:
    """The comparison with another run of the original, as right as the first one, if there is one that agrees."""
    inputs = converted.case.inputs(input_set.sizes)  # as the file got them: the model may choose in making a cache
    with lowest_index_first() as mode:
        expected = run_on(converted.case, inputs)
    decided = _against(converted, input_set, expected, got)
    return replace(decided, ties=True) if mode.had_ties and decided.agrees else result


def _against(converted: Converted, input_set: InputSet, expected: EagerRun, got: Sequence[torch.Tensor]) -> SetResult:
    leaves = _returned(converted, expected.leaves)
    if leaves is None:
        count, traced = len(expected.leaves), len(converted.returns)
        return _not_compared(input_set, f"the original returns {count} values on these inputs, {traced} when traced")
    other = next((leaf for leaf in leaves if not isinstance(leaf.value, torch.Tensor)), None)
    if other is not None:
        kind = type(other.value).__name__
        return _not_compared(input_set, f"output {other.name} is a {kind} on these inputs, and a tensor when traced")
    left = _left(converted, expected, len(leaves))
    unknown = next((leaf.name for leaf in left if leaf.value is None), "")
    if unknown:
        return _not_compared(input_set, f"the original has nothing that {unknown} could be")
    values = [leaf.value for leaf in (*leaves, *left)]
    computed_in = _computed_in(converted, len(left))
    values = [*map(_as_a_constant, values, computed_in, got)] if len(got) == len(values) else values
    got = _narrowed(converted, values, got)
    bounds = [_tolerance(value, dtype) for value, dtype in zip(values, computed_in, strict=True)]
    names = [*(output_name(leaf.name) for leaf in leaves), *(leaf.name for leaf in left)]
    outputs = compare_outputs(names, values, got, bounds)
    blind = not can_tell(values[: len(leaves)])
    return SetResult(name=input_set.name, sizes=input_set.sizes, outputs=outputs, error=BLIND if blind else "")


def _not_compared(input_set: InputSet, problem: str) -> SetResult:
    return SetResult(name=input_set.name, sizes=input_set.sizes, error=problem)


def _left(converted: Converted, expected: EagerRun, returned: int) -> list[Leaf]:
    """What stands in the inputs, buffers and weights behind the run that the file has outputs for, behind those that
    the original returns; the value is None for an output that is of none of them."""
    names = converted.session.output_names[returned:]
    if not all(name.endswith(_WRITTEN) for name in names):
        return []
    taken = itertools.compress(expected.inputs, converted.takes)
    held = {**expected.state, **dict(zip(converted.session.input_names, taken, strict=True))}
    return [Leaf(name, held.get(name.removesuffix(_WRITTEN))) for name in names]


def _computed_in(converted: Converted, left: int) -> list[torch.dtype | None]:
    """Of what the original returns and of as much that it leaves, which may be computed from what all outputs are."""
    own = list(converted.computed_in)
    coarsest: torch.dtype | None = None
    for dtype in own:
        coarsest = coarser(coarsest, dtype) if coarsest and dtype else coarsest or dtype
    return [*own, *[coarsest] * left]


def _as_a_constant(value: torch.Tensor, computed_in: torch.dtype | None, got: torch.Tensor) -> torch.Tensor:
    """A number of Python's that is none of the program's values has no dtype; a file has it in float32."""
    is_number = computed_in is None and not value.dim() and value.dtype == torch.float64
    return value.to(got.dtype) if is_number and got.is_floating_point() else value


def _tolerance(value: torch.Tensor, computed_in: torch.dtype | None) -> Tolerance:
    """Floats are as exact as the coarsest of what they are computed from."""
    return tolerance_for(coarser(value.dtype, computed_in) or value.dtype if value.is_floating_point() else value.dtype)


def _returned(converted: Converted, expected: Sequence[Leaf]) -> list[Leaf] | None:
    """Those of the original's outputs that the converted model has; None if it has others than when it was traced."""
    expected = expected if len(expected) == len(converted.returns) else joined_rows(expected)
    if len(expected) != len(converted.returns):
        return None
    return [leaf for leaf, returned in zip(expected, converted.returns, strict=True) if returned]


def feeds_of(converted: Converted, input_set: InputSet) -> dict[str, torch.Tensor]:
    """The inputs of a set under the names of the ONNX model, which has them in the same order."""
    leaves = given_leaves(converted.case, converted.case.inputs(input_set.sizes))
    values = [leaf for leaf, taken in zip(leaves, converted.takes, strict=True) if taken]
    given = zip(converted.session.input_names, values, strict=True)
    return {name: value.float() if name in converted.wide else value for name, value in given}
