"""torch.export of a module under the guard, and what the program takes for granted of its sizes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from .axes.bound import AxisBound, Kind
from .axes.bounds import bounds_of
from .axes.enlarging import enlarged, small_sizes
from .axes.one_symbol import one_symbol_for_a_name
from .axes.open_slices import open_slices
from .axes.recording import Decision, TraceRecord, with_recording
from .axes.relations import told_to_torch
from .axes.resizing import InputsOfOtherSizes
from .axes.trial import Trial
from .axis_report import AxisOutcome, axis_outcomes, shape_env_of
from .declaration import Patch
from .dynamic_shapes import DynamicShapes, LeafShape, for_torch, normalise, shared_dims
from .errors import ExportError
from .export_errors import explained_export
from .guard import torch_export_patches
from .inputs import CallInputs
from .phases import phase
from .repeats.counts import Counts
from .repeats.markers import expand as expand_markers
from .rewrites.automatic import RewritingStep

logger = logging.getLogger(__name__)

_Prepare = Callable[[CallInputs], CallInputs]
_Steps = Callable[[], Sequence[RewritingStep]]
_Guard = torch_export_patches | None


@dataclass(frozen=True)
class Exported:
    """A program, the shapes that were asked for, one for each leaf of the inputs, and what became of them.

    `fixing_lines` has the lines that fixed a symbol, `bounds` what else the program takes for granted (None: that was
    not looked at). `too_small` has the sizes of the given example that were enlarged, by input and axis. `counts` has
    those of each trace, `seconds` those of each phase. The program may have markers in the place of blocks that were
    not traced; `expanded` has none.
    """

    program: ExportedProgram
    shapes: Sequence[LeafShape] = ()
    fixing_lines: Mapping[str, str] = field(default_factory=dict)
    rewriting_steps: Sequence[RewritingStep] = ()
    bounds: Sequence[AxisBound] | None = None
    too_small: Mapping[tuple[str, int], int] = field(default_factory=dict)
    counts: Sequence[Counts] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def expanded(self) -> ExportedProgram:
        """The program, with the operators in the place of the markers."""
        expand_markers(self.program.graph_module)
        return self.program

    def axes(self) -> list[AxisOutcome]:
        """What became of each axis that was asked for."""
        return (
            axis_outcomes(self.program, self.shapes, self.fixing_lines, self.bounds, self.too_small)
            if self.shapes
            else []
        )


def exported_module(
    model: torch.nn.Module,
    call: CallInputs,
    dynamic_shapes: DynamicShapes,
    guard: _Guard,
    *,
    strict: bool,
    examples: Sequence[CallInputs] = (),
) -> Exported:
    """The module exported with an example of its inputs; `guard` is not open yet.

    `examples` are more of them, for a model whose inputs of other sizes cannot be made of the first.

    Where the program takes more for granted than the model, it is exported once more: with the ends of slices left
    open, if that is where it does, and with an example of sizes at which it is wrong.

    Raises:
        ExportError: torch.export stops.
    """
    with phase("reading the axes"), _serializers(guard):
        given = normalise(model, call, dynamic_shapes)
        example, shapes = enlarged(model, call, given)
    trace = _Request(model, guard, strict, examples)
    found, decisions = trace.attempt(example, shapes)
    if guard is not None and _ends_slices(found, decisions):
        trace = replace(trace, patches=(open_slices(),))
        found = trace.better(found, example, shapes, by=_lost_axes_and_bounds)
    other = _example_beyond(found, example, guard)
    if other is not None:
        with _serializers(guard):
            shapes = normalise(model, other, dynamic_shapes)
        found = trace.better(found, other, shapes, by=_lost_axes)
    return replace(found, too_small=small_sizes(given))


def _example_beyond(exported: Exported, call: CallInputs, guard: _Guard) -> CallInputs | None:
    """Inputs of sizes at which the program is wrong, for another trace; None if it is right, or they are too large."""
    points = (bound.point for bound in exported.bounds or () if bound.kind == Kind.WRONG and bound.point)
    point = next(points, None)
    if point is None:
        return None
    with _serializers(guard):
        return InputsOfOtherSizes(exported.program, call).alike(point)


@dataclass(frozen=True)
class _Request:
    """What is exported, and how."""

    model: torch.nn.Module
    guard: _Guard
    strict: bool
    examples: Sequence[CallInputs] = ()
    patches: Sequence[Patch] = ()

    def attempt(self, call: CallInputs, shapes: Sequence[LeafShape]) -> tuple[Exported, list[Decision]]:
        """One export, and what torch decided about sizes on the way."""
        record = TraceRecord()
        patches = (*self.patches, *one_symbol_for_a_name(shapes))
        with _guard(self.guard, record, patches) as (prepare, steps):
            with phase("torch.export"), explained_export():
                program = _traced(self.model, prepare(call), shapes, self.strict)
            rewritten = steps()
        decisions = record.of(shape_env_of(program))
        with phase("proving the sizes"), _serializers(self.guard):
            trial = Trial(self.model, call, program)
            bounds = bounds_of(program, shapes, decisions, trial, self.examples)
        return Exported(program, shapes, record.fixing_lines, rewritten, bounds), decisions

    def better(
        self, known: Exported, call: CallInputs, shapes: Sequence[LeafShape], *, by: Callable[[Exported], Any]
    ) -> Exported:
        """Another export, if it loses less than the one that is known."""
        try:
            found, _ = self.attempt(call, shapes)
        except ExportError as error:
            logger.info("another export, for the axes that are lost, stops: %s", error)
            return known
        return found if by(found) < by(known) else known


def _lost_axes(exported: Exported) -> int:
    """How many axes are lost: all that counts of an export with an example of sizes that the user did not choose."""
    return sum(not axis.kept for axis in exported.axes())


def _lost_axes_and_bounds(exported: Exported) -> tuple[int, int, int]:
    """How many axes are lost, how many of them are constants, and by how many bounds."""
    constants = sum(axis.is_constant for axis in exported.axes() if not axis.kept)
    bounds = [bound for bound in exported.bounds or () if bound.excludes_what_was_asked]
    return _lost_axes(exported), constants, len(bounds)


def _ends_slices(exported: Exported, decisions: Sequence[Decision]) -> bool:
    """Whether an axis is lost, at a line that asked where a slice ends."""
    lines = {decision.line for decision in decisions if decision.is_of_slice}
    return any(bound.excludes_what_was_asked and bound.line in lines for bound in exported.bounds or ())


@contextlib.contextmanager
def _guard(guard: _Guard, record: TraceRecord, patches: Sequence[Patch]) -> Iterator[tuple[_Prepare, _Steps]]:
    """Yields what makes new containers of the inputs, so that the trace leaves the user's caches as they are, and the
    steps of the rewriting."""
    if guard is None:
        yield lambda call: call, lambda: ()
        return
    with contextlib.ExitStack() as stack:
        with phase("opening the guard"):
            prepare = stack.enter_context(with_recording(guard, record, patches))
        yield lambda call: CallInputs(prepare(call.args), prepare(dict(call.kwargs))), lambda: prepare.rewriting_steps


@contextlib.contextmanager
def _serializers(guard: _Guard) -> Iterator[None]:
    """Classes of inputs are taken apart as in the guard, and the model is run as it is, without patches."""
    if guard is None:
        yield
        return
    with torch_export_patches(patch=False, serializers=guard.serializers):
        yield


def _traced(model: torch.nn.Module, call: CallInputs, shapes: Sequence[LeafShape], strict: bool) -> ExportedProgram:
    """torch.export, which knows what the names of the axes say.

    A strict export knows it from a `Dim`, which torch refuses where the model bounds the axis; a hint is taken then.
    """

    # Importing this takes a second, which torch.export takes anyway.
    from torch._dynamo.exc import UserError, UserErrorType

    def export(dims: Mapping[str, Dim]) -> ExportedProgram:
        spec = for_torch(model, call, shapes, dims)
        return torch.export.export(model, call.args, dict(call.kwargs), dynamic_shapes=spec, strict=strict)

    if not strict:
        with told_to_torch(model, shapes):
            return export({})
    dims = shared_dims(shapes)
    try:
        return export(dims)
    except UserError as error:
        if error.error_type != UserErrorType.CONSTRAINT_VIOLATION or not dims:
            raise
        logger.info("exporting again, without telling torch that axes of one name are equal: %s", error)
    return export({})
