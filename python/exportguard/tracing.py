"""torch.export of a module under the guard, and what the program takes for granted of its sizes."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram

from .axes.behind_tests import Asked, AskedWith, asked_of, example_for_questions
from .axes.bound import AxisBound, Kind
from .axes.bounds import Claim, prove
from .axes.branching import joined
from .axes.enlarging import enlarged
from .axes.gradients import require_same_without_gradients
from .axes.known_ways import sharing_ways
from .axes.limits import limits_of
from .axes.model_run import ModelRun
from .axes.one_symbol import one_symbol_for_a_name
from .axes.open_slices import open_slices
from .axes.recording import TraceRecord, recording_of_none, with_recording
from .axes.regions import EVERYWHERE, Region
from .axes.resizing import InputsOfOtherSizes
from .axes.size_tests import (
    OneWayError,
    Tree,
    Way,
    is_of_sizes,
    limits_of_ways,
    places_with_none,
    tree_of,
    ways_of,
)
from .axes.torch_export import traced
from .axes.traced_program import TracedProgram
from .axes.trial import does_as_the_model
from .cache_names import input_name
from .errors import ExportError, InvalidArgumentError
from .example import Example, Place
from .export_errors import explained_export
from .garbage import without_full_collections
from .inputs import CallInputs
from .joined_parts import joined_parts, tell_joined
from .lost_buffers import told_once
from .patches.torch.constraints import static_axes_reported
from .phases import phase, recorded_phases
from .reading import Exported, joined_names
from .repeats.plan import traced_with_markers
from .request import ExportRequest, serializers_of
from .rewrites.automatic import RewritingStep
from .rewrites.state import shared_snapshots

logger = logging.getLogger(__name__)

_Prepare = Callable[[Any], Any]
_Steps = Callable[[], Sequence[RewritingStep]]


_COMPARED = re.compile(r"\blen\([^()]*\) *([!=]=|in\b|not in\b)|[!=]= *len\(")
_OTHER_THAN_THE_MODEL = (
    "the program that torch.export made does something else than the model, for the inputs it was traced with: {}. A "
    "trace keeps what tensors hold, not which objects they are. What to do: look in the model for tests of identity "
    "(`is`, `id`, tensors as keys), of the class or the version of a weight, of where its memory lies, for what is "
    "done in a trace alone (`torch.compiler.is_compiling()`), for what is different at each call, and for seeds "
    "(`torch.manual_seed`, `random.seed`), since a file draws other numbers; decide that in __init__, and have "
    "forward read the answer"
)


def exported_module(request: ExportRequest) -> Exported:
    """The module exported with an example of its inputs; the guard is not open yet.

    Where the program takes more for granted than the model, it is exported once more: with the ends of slices left
    open, if that is where it does, with an example of sizes at which it is wrong, and with a larger one.

    Raises:
        ExportError: torch.export stops, or its program does something else than the model.
    """
    with without_full_collections(), recorded_phases() as seconds:
        if request.model is not None:
            with phase("comparing with gradients"):
                require_same_without_gradients(request.model, request.example.call)
        # A converter needs no gradients, and what is traced without them has fewer changes of mode to keep.
        with (
            torch.no_grad(),
            shared_snapshots(),
            sharing_ways(),
            serializers_of(request.guard),
            told_once(),
            traced_with_markers(request.repeats) as counts,
        ):
            found = _exported(request)
            found = _with_fewer_bounds(request, found)
            tell_joined(joined_names(found))
    return replace(found, counts=tuple(counts), seconds={**request.seconds, **seconds})


def _with_fewer_bounds(request: ExportRequest, found: Exported) -> Exported:
    """The best export of those that may take less for granted."""
    attempts: list[tuple[Callable[[ExportRequest, Exported], ExportRequest | None], Callable[[Exported], Any]]] = [
        (_with_open_slices, _lost_axes_and_bounds),
        (_with_an_example_beyond, _constants_and_lost_axes),
        (_with_a_larger_example, _lost_axes),
        (_with_open_slices_of_a_larger_example, _lost_axes),
    ]
    for changed, loss in attempts:
        other = changed(request, found)
        better = found if other is None else _better(found, other, loss, request)
        if other is not None and better is not found:
            request, found = other, better
    return _with_tests_of_sizes(request, found)


def _with_open_slices(request: ExportRequest, found: Exported) -> ExportRequest | None:
    """The ends of slices left open, if an axis is lost at a line that asked where a slice ends."""
    lines = {decision.line for decision in found.decisions if decision.is_of_slice}
    losing = {bound.line for bound in found.bounds or () if bound.excludes_what_was_asked}
    is_lost_there = not lines.isdisjoint({*losing, *found.fixing_lines.values()})
    return replace(request, patches=(open_slices(),)) if request.guard is not None and is_lost_there else None


def _with_an_example_beyond(request: ExportRequest, found: Exported) -> ExportRequest | None:
    """Inputs of sizes at which the program is wrong; None if it is right, or they are too large."""
    points = (bound.point for bound in found.bounds or () if bound.kind == Kind.WRONG and bound.point)
    point = next(points, None)
    if point is None:
        return None
    call = InputsOfOtherSizes(found.inputs, request.example.call).alike(point)
    return None if call is None else replace(request, example=request.example.like(call))


def _with_a_larger_example(request: ExportRequest, found: Exported) -> ExportRequest | None:
    """More along the axes that are constants of the program; None if there are none, or the model takes nothing else.

    At the sizes of the example a part may have one entry, which is special to torch.
    """
    fixed = {(axis.input, axis.axis) for axis in found.axes() if axis.is_constant and not axis.kept}
    example = request.example
    named = {place: (input_name(example.shapes[place.leaf].leaf.name), place.axis) for place in example.sizes}
    places = [place for place, name in named.items() if name in fixed]
    if not places:
        return None
    try:
        larger = enlarged(example, ModelRun(request.model, example.call).takes, places)
    except InvalidArgumentError:  # the size is the only one that the model takes
        return None
    return replace(request, example=larger)


def _with_open_slices_of_a_larger_example(request: ExportRequest, found: Exported) -> ExportRequest | None:
    """Both: a slice of the example may have one entry, `x[:, :4:2]` of two columns."""
    with_open_ends = _with_open_slices(request, found)
    return None if with_open_ends is None else _with_a_larger_example(with_open_ends, found)


def _with_tests_of_sizes(request: ExportRequest, found: Exported) -> Exported:
    """The export with a branch at each test that sizes decide, if the control flow of the model is rewritten at all."""
    if not request.is_rewritten or not (any(map(is_of_sizes, found.bounds or ())) or _is_fixed_by_a_choice(found)):
        return found
    first = _way(request.example, found)
    exports = [(first, found)]

    def way(example: Example, region: Region) -> Way:
        exported = _exported(replace(request, example=example), region)
        exports.append((_way(example, exported), exported))
        return exports[-1][0]

    def agrees(way: Way, call: CallInputs) -> bool:
        return does_as_the_model(way.program, request.model, call)

    def one_program(with_none: Sequence[Place]) -> tuple[Tree, ExportedProgram, list[Exported]]:
        tree = tree_of(first, way, agrees, with_none)
        used = {id(leaf) for leaf in ways_of(tree)}
        return tree, joined(tree), [exported for leaf, exported in exports if id(leaf) in used]

    try:
        empty = places_with_none(first, ModelRun(request.model, request.example.call).takes)
        try:
            (tree, program, used), excluded = one_program(empty), list[AxisBound]()
        except (ExportError, OneWayError) as error:
            if not empty:
                raise
            logger.info("no way for sizes of 0: %s", error)
            (tree, program, used), excluded = one_program(()), _bounds_of_none(found, request.example, empty)
    except (ExportError, OneWayError) as error:
        reason = next(iter(str(error).splitlines()), "")
        logger.info("tests on sizes stay as the example decides them: %s", reason)
        _warn(bound for bound in found.bounds or () if bound.kind == Kind.NONE)
        return replace(found, untested=f"tests on sizes cannot become branches: {reason}")
    logger.info("%d programs for different sizes are one", len(used))
    _warn(excluded)
    one = _joined(program, used)
    limits = [*limits_of_ways(tree), *limits_of(found.inputs, excluded)]
    return replace(one, bounds=[*(one.bounds or ()), *excluded], limits=limits)


def _is_fixed_by_a_choice(found: Exported) -> bool:
    """Whether an axis is a constant since the example has the size that the model asks for: `if x.shape[0] == 3`."""
    # Python's `len` gives a number whatever is asked of it, so that what its line looks like says whether to try.
    asked = (entry for entry in found.decisions if entry.is_choice or (entry.is_test and _COMPARED.search(entry.line)))
    choices = {decision.line for decision in asked}
    return not choices.isdisjoint(found.fixing_lines.values())


def _bounds_of_none(found: Exported, example: Example, places: Sequence[Place]) -> list[AxisBound]:
    """Sizes of 0 have no way of their own: what is known of that, or that the model takes them."""
    known = [bound for bound in found.bounds or () if bound.kind == Kind.NONE]
    names = ((example.shapes[place.leaf].leaf.name, place.axis) for place in places)
    return known or [
        AxisBound(condition=f"axis {axis} of {name} >= 1", symbols=frozenset(), kind=Kind.NONE) for name, axis in names
    ]


def _warn(bounds: Iterable[AxisBound]) -> None:
    for bound in bounds:
        logger.warning("%s", bound)


def _way(example: Example, exported: Exported) -> Way:
    return Way(exported.expanded(), example, exported.inputs, tuple(exported.bounds or ()))


def _joined(program: ExportedProgram, ways: Sequence[Exported]) -> Exported:
    """What is known of several exports, of their one program."""
    bounds = {bound.condition: bound for way in ways for bound in way.bounds or () if not is_of_sizes(bound)}
    steps = {id(step.patch): step for way in ways for step in way.rewriting_steps}
    return replace(ways[0], program=program, bounds=list(bounds.values()), rewriting_steps=list(steps.values()))


def _traced(
    request: ExportRequest, record: TraceRecord, example: Example
) -> tuple[ExportedProgram, Sequence[RewritingStep]]:
    """The program of one trace, and the steps of the rewriting."""
    with _guard(request, record) as (prepare, steps):
        example = replace(example, call=example.call.mapped(prepare))
        with phase("torch.export"), explained_export(), static_axes_reported():
            program = traced(request.model, example, strict=request.strict)
        return program, steps()


def _asked_with(request: ExportRequest) -> AskedWith:
    """What tells the questions of the model with inputs of other sizes."""

    def questions(call: CallInputs) -> Asked | None:
        record, example = TraceRecord(), example_for_questions(request.example.like(call))
        try:
            with joined_parts():  # those of this program are not looked for
                program = TracedProgram(_traced(request, record, example)[0])
        except ExportError as error:
            logger.info("at other sizes torch.export stops: %s", error)
            return None
        return asked_of(program, record.of(program.inputs.shape_env), request.example.like(call))

    return questions


def _exported(request: ExportRequest, region: Region = EVERYWHERE) -> Exported:
    """One export, for the sizes of a region, and what torch decided about sizes on the way."""
    with joined_parts() as joined:
        return replace(_exported_and_proved(request, region), joined=frozenset(joined.outputs))


def _exported_and_proved(request: ExportRequest, region: Region) -> Exported:
    record = TraceRecord()
    program, rewritten = _traced(request, record, request.example)
    with phase("proving the sizes"):
        claim = Claim(
            model=request.model,
            example=request.example,
            program=program,
            record=record,
            further=request.further,
            within=region,
            is_for_branches=request.is_rewritten,
            returns_written=request.returns_written,
            asked_with=_asked_with(request),
        )
        proof = prove(claim)
    if proof.difference and request.repeats != "verify":  # which tells more, and traces everything in the end
        raise ExportError(_OTHER_THAN_THE_MODEL.format(proof.difference))
    return Exported(
        program,
        request.example.shapes,
        record.fixing_lines,
        rewritten,
        proof.bounds,
        request.too_small,
        decisions=proof.decisions,
        may_rewrite=request.guard is not None and not request.is_rewritten,
    )


def _better(known: Exported, request: ExportRequest, loss: Callable[[Exported], Any], given: ExportRequest) -> Exported:
    """Another export, if it loses less than the one that is known.

    With an example that the user did not choose it must do for the given one what the model does: in inputs that were
    made of others the numbers may not go with the sizes, as a count of the patches that is no longer that of the
    patches.
    """
    try:
        found = _exported(request)
    except ExportError as error:
        logger.info("another export, for the axes that are lost, stops: %s", error)
        return known
    if not loss(found) < loss(known):
        return known
    call = given.example.call
    if request.example.call is call or does_as_the_model(found.expanded(), request.model, call):
        return found
    logger.info("another export, for the axes that are lost, is wrong for the given example")
    return known


def _constants_and_lost_axes(exported: Exported) -> tuple[int, int]:
    """An axis that takes a single size is a greater loss than several that take all sizes but a few."""
    lost = [axis for axis in exported.axes() if not axis.kept]
    return sum(axis.is_constant for axis in lost), len(lost)


def _lost_axes(exported: Exported) -> int:
    """How many axes are lost: all that counts of an export with an example of sizes that the user did not choose."""
    return sum(not axis.kept for axis in exported.axes())


def _lost_axes_and_bounds(exported: Exported) -> tuple[int, int, int]:
    """How many axes are lost, how many of them are constants, and by how many bounds."""
    constants = sum(axis.is_constant for axis in exported.axes() if not axis.kept)
    bounds = [bound for bound in exported.bounds or () if bound.excludes_what_was_asked]
    return _lost_axes(exported), constants, len(bounds)


@contextlib.contextmanager
def _guard(request: ExportRequest, record: TraceRecord) -> Iterator[tuple[_Prepare, _Steps]]:
    """Yields what makes new containers of the inputs, so that the trace leaves the user's caches as they are, and the
    steps of the rewriting."""
    if request.guard is None:
        yield lambda arguments: arguments, lambda: ()
        return
    of_none = recording_of_none(record)
    patches = (*request.patches, *one_symbol_for_a_name(request.example), *of_none)
    with contextlib.ExitStack() as stack:
        with phase("opening the guard"):
            prepare = stack.enter_context(with_recording(request.guard, record, patches))
        yield prepare, lambda: prepare.rewriting_steps
