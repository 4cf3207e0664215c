"""Rewrites the functions that an export stops at, until it does not stop any more.

There is one implementation, a patch of torch.export that the guard installs: `torch_export_patches(rewrite="auto")`,
`to_onnx(…, rewrite="auto")` and `export_with_rewriting` all open a guard with it.
"""

from __future__ import annotations

import functools
import inspect
import logging
import re
import types
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from exportguard.declaration.opened import opened
from exportguard.declaration.options import PatchOptions
from exportguard.declaration.patch import NEEDED, Patch, Verdict
from exportguard.export_errors import behind_handlers, is_asked_by_operator, without_addresses, without_partial_graph
from exportguard.rewrites.asking import answered, answering_patches, asking_functions
from exportguard.rewrites.calls import Called
from exportguard.rewrites.collected import UnknownLengthError
from exportguard.rewrites.drawn import DrawnError
from exportguard.rewrites.fixed_loops import FixedAxes, fixed_axes
from exportguard.rewrites.in_place import InPlaceRewrite, rewrite_in_place
from exportguard.rewrites.nothing import NoneMetError
from exportguard.rewrites.packed_rows import remembered_lists
from exportguard.rewrites.places import Place, contains, places_of
from exportguard.rewrites.rewriting_steps import Form, RewritingStep, RewrittenExport
from exportguard.rewrites.state import Snapshot
from exportguard.rewrites.watch import is_stop, watch_exports
from exportguard.source.errors import RewriteError, forget

logger = logging.getLogger(__name__)

_TARGET = "torch.export._trace._export"
_ATTEMPTS = 40  # exports before it gives up; a model rarely needs more than five
_LEFT: weakref.WeakKeyDictionary[torch.export.ExportedProgram, tuple[str, ...]] = weakref.WeakKeyDictionary()
_TRACED_AGAIN = (UnknownLengthError, NoneMetError)  # what stopped it, more is rewritten so that it tells
_INNERMOST = 4  # functions around the line that stopped the export, of which one is to be rewritten


@dataclass(frozen=True, kw_only=True, eq=False)
class AutomaticRewriting(Patch):
    """Lets torch.export rewrite what it stops at. The steps are those of the exports since the guard was opened."""

    steps: list[RewritingStep] = field(default_factory=list, init=False)
    _folder: list[str] = field(default_factory=list, init=False)

    def _find_verdict(self) -> Verdict:
        return NEEDED

    def replacements(self) -> list[Any]:
        """None that could be shown: what torch.export rewrites is found later."""
        return []

    def install(self, changes: Any) -> None:
        """Takes the place of torch's export of a module."""
        from torch.export import _trace

        self.steps.clear()
        self._folder.clear()
        watch_exports(changes)
        changes.set_attribute(_trace, "_export", self._rewriting(_trace._export))

    def dump(self, folder: str) -> None:
        """Notes where the functions that an export rewrites are written to."""
        self._folder.append(folder)

    def _rewriting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def export(mod: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            search = _Search(mod, lambda: original(mod, *args, **kwargs), self.steps)
            with remembered_lists():
                program = search.run()
            self._accept(search.steps)
            return program

        return export

    def _accept(self, steps: Sequence[RewritingStep]) -> None:
        for step in steps:
            if step not in self.steps:
                logger.info("the export stopped at %s", step.report())
        self.steps[:] = steps
        for folder in self._folder:
            for step in steps:
                step.patch.dump(folder)


def automatic_rewriting() -> AutomaticRewriting:
    """What `rewrite="auto"` stands for."""
    return AutomaticRewriting(
        name="automatic rewriting",
        kind="rewrite",
        target=_TARGET,
        reason="functions that stop an export at a test on tensor data are rewritten",
    )


def loops_left(program: torch.export.ExportedProgram) -> tuple[str, ...]:
    """Why each loop that made an axis of a program a constant could not be rewritten."""
    return _LEFT.get(program, ())


_WANTS_A_NUMBER = "Could not extract specialized integer"  # of torch 2.11 to 2.13
_ASKS = "Could not guard on data-dependent"
_OPERATOR_ASKS = (
    "an operator asks here for a size that tensor data decide, as the number of rows of `x[mask]`, since that says how "
    "many results it has, or how they look: take slices of known places, as `x[:2]`, or keep all rows and a mask"
)
_IS_A_GENERATOR = "is a generator that"
_IS_NO_DEF = "is not defined by `def`"

#: What torch 2.11 to 2.13 and Python say of rewritten code that goes beyond them, and what it means for the model.
_REASONS = {
    # Of symbols for sizes of inputs alone: those for numbers of tensor data are u0, zuf0, …
    r"\A(?![^<]*\b(?:u|zuf)\d)[^<]*\(<class 'torch\.Sym\w+'>, \d+\)\s*is not tracked with proxy": (
        "a size of the inputs is used in a step or a branch whose tensors have sizes of their own, as those of `x[:d]` "
        "in a loop that changes `d`, and torch cannot hand it in: let each step have tensors of one size, as by "
        "`torch.where(torch.arange(n) >= d, x.roll(d), 0)`"
    ),
    "is not tracked with proxy": "a number made of tensor data outside of a branch or a loop is used inside of it, "
    "which torch cannot hand in: compute it inside, or keep it a tensor",
    "fake tensor in the exported program constant": "a tensor that a branch or a loop makes is kept where no graph can "
    "return it from, as in an attribute of a tensor: keep it in a variable",
    "where it is not associated with a value": "a variable has a value on one path of a test on tensor data alone: "
    "give it one before the test",
    "unhashable type: non-nested SymInt": "a dynamic size, or a number of tensor data, is a key of a dict, an element "
    "of a set, or what a cached function goes by, and Python wants its value there: write the look-up as tests of the "
    "number, or look it up in a tensor",
    _WANTS_A_NUMBER: "Python needs the value of a number of tensor data here: use it as a "
    "size, an index or in arithmetic alone",
    _ASKS: "Python itself decides on tensor data here, in what cannot be rewritten, such "
    "as a function of the standard library, a comparison of tuples or the method of a container: write the decision as "
    "an `if` or a loop, or with torch.where",
    r"unsupported operand type\(s\) for -: 'Equality'": "Python itself compares truth values of tensor data here, as "
    "itertools.groupby does: write the comparison as an `if` in a loop",
    "sympy expression is NaN": "an infinite number, or one that is none, meets a number of tensor data: make it a "
    "tensor, torch.tensor(float('inf'))",
    "is not safe, use": "the branches of a test on tensor data make objects that are no values, such as functions: "
    "call them in the branches",
    "output stride is not a simple": "the branches of a test on tensor data give tensors of different sizes: make them "
    "of one size, or return the number of their elements beside them",
}


@dataclass(frozen=True)
class _Failed:
    """An attempt that did not give a program."""

    error: Exception
    places: list[Place]

    @property
    def line(self) -> tuple[str, int] | None:
        """Where the innermost function of the user was."""
        return (self.places[0].ran.co_filename, self.places[0].line) if self.places else None

    def text(self) -> str:
        """The first line of the error."""
        lines = without_addresses(str(self.error)).strip().splitlines()
        return next(iter(lines), type(self.error).__name__)

    @property
    def is_of_operator(self) -> bool:
        """Whether an operator wanted to know a size, and no code that could be rewritten."""
        is_question = any(said in str(self.error) for said in (_ASKS, _WANTS_A_NUMBER))
        return is_question and is_asked_by_operator(self.error)

    def in_words(self) -> str | None:
        """What torch or Python said of rewritten code, in words of the model's; None if nothing is known of it."""
        if self.is_of_operator:
            return self._told(_OPERATOR_ASKS)
        found = (reason for said, reason in _REASONS.items() if re.search(said, str(self.error)))
        reason = next(found, None)
        return None if reason is None else self._told(reason)

    def of_rewritten(self) -> str | None:
        """The same of an error that nothing is known of, where rewritten code ran into it."""
        if not self.places or is_stop(self.error) or isinstance(self.error, RewriteError):
            return None
        return self._told(
            "this has no meaning with what stands for a number of tensor data, or for a tensor of any size"
        )

    def _told(self, reason: str) -> str:
        line = f"line {self.places[0].line}: " if self.places else ""
        return f"{line}{reason} ({self.text()})"


class _Search:
    """Tries what may be rewritten around the line that stops an export, the innermost function first."""

    def __init__(self, model: torch.nn.Module, export: Callable[[], Any], steps: Sequence[RewritingStep]) -> None:
        self._model = model
        self._export = export
        self._attempts = 0
        self._reasons: list[str] = []
        self._refusals: list[RewriteError] = []  # of attempts, in their order
        self._failures: list[_Failed] = []  # of attempts that came no further
        self._fixed = FixedAxes()  # by the last attempt
        self._furthest: _Failed  # the last attempt that came beyond the line where the one before it had stopped
        self._found: dict[types.CodeType, list[types.FunctionType]] = {}  # the functions that run some code
        self._patches: dict[Hashable, InPlaceRewrite | RewriteError] = {}  # by the functions and the form
        self._known: dict[Hashable, _Failed] = {}  # what became of attempts, by what was rewritten for them
        self._called = Called.by(model)
        self._asking = [*asking_functions(self._called)]
        self._answering = answering_patches(asking for asking in self._asking if asking.is_installed)
        self.steps = self._with_asking(steps)

    def run(self) -> Any:
        """The first program that an attempt gives, with as few of its axes fixed by loops as rewriting achieves.

        :raises RewriteError: why what torch stopped at cannot be rewritten
        :raises Exception: that of the first attempt, with what was tried as a note, if nothing could be tried
        """
        outcome = self._attempt(self.steps)
        if isinstance(outcome, _Failed):
            self._furthest = outcome
            found = self._beyond(outcome, self.steps)
            if found is None:
                error = self._furthest.error
                self._failures.append(self._furthest)
                self._explain(error, outcome)
                raise self._reason_for(error) from error
            outcome, self.steps = found
        return self._with_loops_kept(outcome)

    def _with_asking(self, steps: Sequence[RewritingStep]) -> list[RewritingStep]:
        """The steps, with those for functions that ask of what type an object is in a way that nothing else answers."""
        made = [*steps]
        for asking in self._asking:
            place = Place(code=asking.code, ran=asking.code, line=min(asking.lines))
            if not asking.is_installed and not any(_runs(step, place) for step in made):
                reason = _Failed(RewriteError("what stands for a number of tensor data is no number itself"), [place])
                step = self._step(asking.functions, place, reason, Form())
                made += [step] if step is not None else []
        return made

    def _attempt(self, steps: Sequence[RewritingStep]) -> Any:
        """A program, or how the attempt failed; the model is then as it was."""
        self._attempts += 1
        snapshot = Snapshot(self._model.modules())
        try:
            options = PatchOptions.rewriting((*(step.patch for step in steps), *self._answering_beside(steps)))
            with opened(options), answered(self._called.modules), fixed_axes() as self._fixed, without_partial_graph():
                return self._export()
        except Exception as raised:  # what torch raises at a test on data is of many kinds
            error = behind_handlers(raised)
            snapshot.restore(snapshot.changes())
            if isinstance(error, RewriteError):
                self._refusals.append(error)
            places = self._fixed.loops() if _fixes_an_axis(error) else places_of(error)
            return _Failed(error, [*map(self._of_the_original, places)])

    def _answering_beside(self, steps: Sequence[RewritingStep]) -> list[InPlaceRewrite]:
        """What answers in functions of packages that are not rewritten as a whole, which does so as well."""
        rewritten = {function for step in steps for function in step.patch.functions}
        return [patch for patch in self._answering if rewritten.isdisjoint(patch.functions)]

    def _of_the_original(self, place: Place) -> Place:
        """A place in a function of a package that answers, as one of the function that it stands for."""
        for patch in self._answering:
            code = patch.rewritten.func.__code__
            if place.code is code or contains(code, place.code):
                return replace(place, code=patch.functions[0].__code__)
        return place

    def _attempt_once(self, steps: Sequence[RewritingStep]) -> Any:
        """An attempt, or how one with the same functions rewritten in the same way failed."""
        key = frozenset((step.patch.functions, step.form) for step in steps)
        if key not in self._known:
            outcome = self._attempt(steps)
            if not isinstance(outcome, _Failed):
                return outcome
            self._known[key] = outcome
        return self._known[key]

    def _beyond(self, failed: _Failed, steps: list[RewritingStep]) -> tuple[Any, list[RewritingStep]] | None:
        """The program of an attempt with more rewritten, and all steps; None if nothing leads to one."""
        met: tuple[_Failed, list[RewritingStep]] | None = None  # None beside a value, where all that is there is tried
        for tried in self._more_rewritten(failed, steps):
            if self._attempts >= _ATTEMPTS:
                break
            outcome = self._attempt_once(tried)
            if not isinstance(outcome, _Failed):
                return outcome, tried
            if isinstance(outcome.error, DrawnError):
                self._furthest = outcome
                break
            if isinstance(outcome.error, NoneMetError):
                met = met or (outcome, tried)
            if not _is_progress(outcome, failed, tried):
                targets = " and ".join(str(step.patch.target) for step in tried if step not in steps)
                self._reasons.append(f"{targets} rewritten: {outcome.text()}")
                self._failures.append(outcome)
                continue
            self._furthest = outcome
            found = self._beyond(outcome, tried)
            if found is not None or is_stop(outcome.error):  # other ways past the same line would stop there as well
                return found
        return None if met is None else self._beyond(*met)

    def _more_rewritten(self, failed: _Failed, steps: list[RewritingStep]) -> Iterator[list[RewritingStep]]:
        """The steps with one more, and in the end with the functions around the line at once, as wholes and then with
        sizes kept: what one of them makes of tensor data (`x.tolist()` with sizes kept alone), another one tests."""
        for step in self._candidates(failed, steps):
            yield self._with_consumers([*_others(steps, step), step], failed)
        if is_stop(failed.error):
            for form in (Form(), Form(keep_sizes=True)):
                together = self._around(failed, steps, form)
                if sum(step not in steps for step in together) > 1:
                    yield self._with_consumers(together, failed)

    def _around(self, failed: _Failed, steps: list[RewritingStep], form: Form) -> list[RewritingStep]:
        """The steps with those for each function around the line that is not rewritten as a whole yet."""
        found = [*steps]
        for place in _different(failed.places)[:_INNERMOST]:
            known = next((step for step in found if _runs(step, place)), None)
            if known is None or known.form.lines is not None:
                functions = self._functions(place, known)
                step = self._step(functions, place, failed, replace(form, tell_nones=_tells_nones(known)))
                found = found if step is None else [*_others(found, step), step]
        return found

    def _candidates(self, failed: _Failed, steps: Sequence[RewritingStep]) -> Iterator[RewritingStep]:
        """What may be rewritten next: each function around the line, as a whole or its statement at that line alone."""
        is_of_list = isinstance(failed.error, UnknownLengthError)
        if isinstance(failed.error, NoneMetError):
            yield from self._telling_nones(failed, steps)
        if not failed.places or not (is_stop(failed.error) or is_of_list):
            return
        asks_size = is_of_list or _WANTS_A_NUMBER in str(failed.error)  # as `len(x[mask])` does
        for place in _different(failed.places)[:_INNERMOST]:
            known = next((s for s in steps if _runs(s, place)), None)
            is_whole = known is not None and known.form.lines is None
            if known is not None and is_whole and (known.form.keep_sizes or not asks_size):
                continue
            functions = self._functions(place, known)
            first = Form() if known is None else replace(known.form, lines=None)
            lines = known.form.lines if known is not None and known.form.lines else frozenset[int]()
            whole = [] if is_whole else [first]
            others = [] if is_whole else [replace(first, lines=lines | {place.line}), replace(first, absorb_rest=True)]
            sizes = [replace(first, keep_sizes=True)] if asks_size else []
            for form in (*whole, *sizes, *others):
                step = self._step(functions, place, failed, form)
                if step is not None:
                    yield step

    def _telling_nones(self, failed: _Failed, steps: Sequence[RewritingStep]) -> Iterator[RewritingStep]:
        """The functions around a line where None meets a value, with variables that say which of the two there is."""
        for place in _different(failed.places)[:_INNERMOST]:
            known = next((step for step in steps if _runs(step, place)), None)
            if not _tells_nones(known):
                form = replace(Form() if known is None else known.form, lines=None, tell_nones=True)
                step = self._step(self._functions(place, known), place, failed, form)
                if step is not None:
                    yield step

    def _with_consumers(
        self, steps: list[RewritingStep], failed: _Failed, *, keep_sizes: bool = False
    ) -> list[RewritingStep]:
        """The steps, with those for what goes through generators that they rewrite: one is no use without the other."""
        found = [*steps]
        for place, consumer in _consumers(failed.places):
            if not any(_runs(step, place) for step in found):
                continue
            known = next((step for step in found if _runs(step, consumer)), None)
            if known is not None and known.form.lines is None and (known.form.keep_sizes or not keep_sizes):
                continue
            functions = self._functions(consumer, known)
            form = Form(keep_sizes=keep_sizes, tell_nones=_tells_nones(known))
            made = self._step(functions, consumer, failed, form)
            if made is not None:
                found = [*_others(found, made), made]
        return found

    def _functions(self, place: Place, known: RewritingStep | None) -> list[types.FunctionType]:
        """The functions that a step rewrites, or those at a place: all objects are gone through for these, once for
        what is no closure."""
        if known is not None:
            return [*known.patch.functions]
        code = place.code
        if code not in self._found or code.co_flags & inspect.CO_NESTED:
            self._found[code] = place.functions()
        return self._found[code]

    def _step(self, functions: Sequence[Any], place: Place, failed: _Failed, form: Form) -> RewritingStep | None:
        patch = self._patch(functions, form) if functions else None
        if not isinstance(patch, InPlaceRewrite):
            if patch is not None and form.lines is None and not form.absorb_rest:
                self._reasons.append(str(patch))
            return None
        return RewritingStep(patch=patch, stopped_at=str(place), error=failed.text(), form=form)

    def _patch(self, functions: Sequence[Any], form: Form) -> InPlaceRewrite | RewriteError:
        """Functions rewritten in a form, once, so that what ran is known by its code; or why they cannot be."""
        key = (*functions, form)
        if key not in self._patches:
            try:
                self._patches[key] = rewrite_in_place(
                    functions,
                    form.lines,
                    absorb_rest=form.absorb_rest,
                    keep_sizes=form.keep_sizes,
                    tell_nones=form.tell_nones,
                )
            except RewriteError as reason:
                forget(reason)
                self._patches[key] = reason
        return self._patches[key]

    def _with_loops_kept(self, program: Any) -> Any:
        """The program, exported again with a loop rewritten that made a dynamic axis a constant, where that helps."""
        tried: set[types.CodeType] = set()
        told: set[types.CodeType] = set()  # those of which it is known why
        left: list[str] = []
        while True:
            fixed = self._fixed
            loops = map(self._of_the_original, fixed.loops())
            places = (p for p in loops if p.code not in tried and not _keeps_sizes_at(p, self.steps))
            place = next(places, None)
            if place is None or self._attempts >= _ATTEMPTS:
                left += self._staying(fixed, told)
                if left:
                    _LEFT[program] = tuple(left)
                return program
            tried.add(place.code)
            known = next((step for step in self.steps if _runs(step, place)), None)
            functions = self._functions(place, known)
            if not functions:
                continue
            known_reasons = len(self._reasons)
            failed = _Failed(RewriteError("nothing in its function can be rewritten"), [place])
            form = Form() if known is None else replace(known.form, lines=None)
            step = self._step(functions, place, failed, replace(form, keep_sizes=True))
            if step is None and self._reasons[known_reasons:]:
                failed = _Failed(RewriteError(self._reasons[-1]), [place])
            others = [other for other in self.steps if other is not known]
            steps = [*others] if step is None else self._with_consumers([*others, step], failed, keep_sizes=True)
            outcome = self._attempt(steps) if step is not None else failed
            if isinstance(outcome, _Failed) and (
                isinstance(outcome.error, _TRACED_AGAIN) or _stops_behind(outcome, step)
            ):
                outcome, steps = self._beyond(outcome, steps) or (outcome, steps)
            elif isinstance(outcome, _Failed) and step is not None and not form.tell_nones:  # None may end at an error
                telling = self._step(functions, place, failed, replace(form, keep_sizes=True, tell_nones=True))
                if telling is not None and telling.patch.reason != step.patch.reason:
                    steps = [*_others(steps, telling), telling]
                    outcome = self._attempt(steps)
            if not isinstance(outcome, _Failed) and step is not None:
                outcome, steps = self._where_it_is_handed_to(outcome, steps, fixed)
                if not isinstance(outcome, _Failed) and self._fixed.loss < fixed.loss:
                    program, self.steps = outcome, steps
                    continue
            self._fixed = fixed
            if isinstance(outcome, _Failed):
                told.add(place.code)
                left.append(f"what stands at {place} cannot be rewritten: {outcome.in_words() or outcome.text()}")
            elif known is None:
                left.append(f"{place} was rewritten, and the axis is a constant all the same")

    def _where_it_is_handed_to(self, program: Any, steps: list[RewritingStep], before: FixedAxes) -> tuple[Any, Any]:
        """What is symbolic now may become a constant in the next function that it is handed to, as in
        `for i in range(count)`: the program with those rewritten as well, or how that failed, and the steps."""
        outcome = program
        while not self._fixed.loss < before.loss and self._attempts < _ATTEMPTS:
            loops = map(self._of_the_original, self._fixed.loops())
            place = next((place for place in loops if not _keeps_sizes_at(place, steps)), None)
            known = next((step for step in steps if place is not None and _runs(step, place)), None)
            functions = [] if place is None else self._functions(place, known)
            if place is None or not functions:
                break
            failed = _Failed(RewriteError("a number of sizes is a constant there"), [place])
            form = Form() if known is None else replace(known.form, lines=None)
            step = self._step(functions, place, failed, replace(form, keep_sizes=True))
            if step is None:
                break
            steps = self._with_consumers([*_others(steps, step), step], failed, keep_sizes=True)
            outcome = self._attempt(steps)
            if isinstance(outcome, _Failed):
                break
        return outcome, steps

    def _staying(self, fixed: FixedAxes, told: set[types.CodeType]) -> list[str]:
        """Why loops of functions that are rewritten are Python's all the same, but for those that it is told of."""
        loops = [place for place in fixed.loops() if self._of_the_original(place).code not in told]
        places = [place for place in loops if any(_runs(step, place) for step in self.steps)]
        return [
            f"the loop at {place} stays one of Python: no graph can have a body with `del`, `yield` or `global`, "
            "nor go through an iterator or a list made elsewhere; write it over a tensor, or range(…) of its size"
            for place in _different(places)
        ]

    def _reason_for(self, error: Exception) -> Exception:
        """What the user is told: the rewriting's own reason with the file, rather than what torch stopped at."""
        # A list asked for its length, and what may be None, is traced again so that it tells: what stops that is the
        # reason.
        final = [refusal for refusal in self._refusals if not isinstance(refusal, _TRACED_AGAIN)]
        refusal = next(iter(final or self._refusals), None) or self._explained()
        is_final = isinstance(error, RewriteError) and not (isinstance(error, _TRACED_AGAIN) and final)
        if is_final or refusal is None:
            return error
        place = next(iter(places_of(error) or places_of(refusal)), None)
        told = RewriteError(f"{place}\n{refusal}" if place is not None else str(refusal))
        forget(told)
        for note in getattr(error, "__notes__", ()):
            told.add_note(note)
        return told

    def _explained(self) -> RewriteError | None:
        """What torch or Python said of rewritten code, in words of the model's."""
        places = self._furthest.places
        if places and places[0].code.co_name == "<lambda>" and not self._furthest.is_of_operator:
            reason = next((reason for reason in self._reasons if _IS_NO_DEF in reason), None)
            if reason is not None:
                return RewriteError(reason)
        for failed in self._failures:
            told = failed.in_words() or (failed.of_rewritten() if self._attempts > 1 else None)
            if told is not None:
                return RewriteError(told)
        return next((RewriteError(reason) for reason in self._reasons if _IS_A_GENERATOR in reason), None)

    def _explain(self, error: Exception, first: _Failed) -> None:
        if self._attempts == 1 and not is_stop(error):
            return  # nothing that rewriting is for
        tried = [*dict.fromkeys(self._reasons)]
        if error is not first.error and first.places:
            tried.insert(
                0, f"what stopped the first one, {first.places[0]}, was rewritten, and the last came to this line"
            )
        told = "; ".join(tried) or "none of the functions around that line has a source that can be rewritten"
        error.add_note(f"exportguard: {self._attempts} exports were tried. {told}")


def _consumers(places: Sequence[Place]) -> Iterator[tuple[Place, Place]]:
    """Each generator among the places with what goes through it, which may be one itself."""
    for place in places:
        current = place
        while current.consumer is not None:
            yield current, current.consumer
            current = current.consumer


def _keeps_sizes_at(place: Place, steps: Sequence[RewritingStep]) -> bool:
    return any(_runs(step, place) and step.form.keep_sizes for step in steps)


def _others(steps: Sequence[RewritingStep], step: RewritingStep) -> list[RewritingStep]:
    """The steps for other functions."""
    return [known for known in steps if known.patch.functions != step.patch.functions]


def _stops_behind(failed: _Failed, step: RewritingStep | None) -> bool:
    """Whether another function asks for the value of what a step made, as `torch.tensor` does of numbers of sizes."""
    return step is not None and is_stop(failed.error) and bool(failed.places) and not _runs(step, failed.places[0])


def _different(places: Sequence[Place]) -> list[Place]:
    """The first place of each function."""
    return list({place.code: place for place in reversed(places)}.values())[::-1]


def _runs(step: RewritingStep, place: Place) -> bool:
    """Whether it is the step's function, original or rewritten, that ran there."""
    own = (step.patch.rewritten.func.__code__, *(function.__code__ for function in step.patch.functions))
    return any(code is place.code or contains(code, place.ran) for code in own)


def _tells_nones(step: RewritingStep | None) -> bool:
    return step is not None and step.form.tell_nones


def _fixes_an_axis(error: Exception) -> bool:
    from torch._dynamo.exc import UserError, UserErrorType

    return isinstance(error, UserError) and error.error_type == UserErrorType.CONSTRAINT_VIOLATION


def _is_progress(outcome: _Failed, before: _Failed, steps: Sequence[RewritingStep]) -> bool:
    """Whether the export came to another line, outside what was rewritten for it, or to one that asks a list for its
    length, which what is rewritten as a whole may be made to tell."""
    is_of_list = isinstance(outcome.error, UnknownLengthError) and all(step.form.lines is None for step in steps)
    goes_on = is_stop(outcome.error) or is_of_list
    return goes_on and outcome.line is not None and outcome.line != before.line


__all__ = ["AutomaticRewriting", "RewritingStep", "RewrittenExport", "automatic_rewriting"]
