"""A record of what torch decides about sizes while it traces a model, with the line of the model for each decision."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import types
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import sympy
import torch

from exportguard.declaration import Patch
from exportguard.declaration.options import PatchOptions
from exportguard.model_code import is_installed, users_frame
from exportguard.patches.torch.static_axes import model_line
from exportguard.rewrites.catching import is_caught

from .numbers_at_hand import numbers_at_hand
from .open_slices import ASKING

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Options = TypeVar("_Options", bound=PatchOptions)

_SHAPE_ENV = "torch.fx.experimental.symbolic_shapes.ShapeEnv"


@dataclass(frozen=True)
class Decision:
    """A condition on sizes that torch took for true, `line` being the line of the model: of several that asked the same
    the first, or else the first that is a test of the user's own code.

    It is the model's own if the model, or a layer of torch.nn, asked for it; if not, torch did within an operator. What
    an operator asks where the model may catch what it raises decides about the model's way as well.
    `is_of_slice` if that asks where a slice ends, `is_of_squeeze` if it says that an axis is not squeezed away,
    `is_hidden` if it is asked in branches and loops alone that tensor data may not come to, `is_test` if Python code of
    the model got the answer, and not an operator alone; `is_choice` if it asked for that, and no number. If it got a
    number, `at_hand` are others that the code may compare it with; `in_code` are those that the code has in any case.
    """

    condition: sympy.Basic
    line: str
    is_of_model: bool
    is_of_slice: bool = False
    is_of_squeeze: bool = False
    is_hidden: bool = False
    is_test: bool = False
    is_choice: bool = False
    at_hand: tuple[int, ...] = ()
    in_code: tuple[int, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether its line is one of the user's own code, and of no installed package."""
        return not is_installed(self.line)


@dataclass(frozen=True)
class QuestionOfNone:
    """A comparison that torch answers by itself, since its sizes are positive, and that a size of 0 would answer in
    another way: `size` is torch's name of it, `line` the line of the model. It `is_test` if the user's own code
    compares, and neither that of a package nor an operator, as `reshape(n, -1)`."""

    size: str
    line: str
    is_test: bool = False


@dataclass
class TraceRecord:
    """What was decided in each shape environment, and by torch's symbol the line that made it a number."""

    fixing_lines: dict[str, str] = field(default_factory=dict)
    of_none: list[QuestionOfNone] = field(default_factory=list)
    _decisions: dict[int, dict[sympy.Basic, Decision]] = field(default_factory=dict)

    def of(self, shape_env: object) -> list[Decision]:
        """The decisions of one trace in their order, each once."""
        return [*self._decisions.get(id(shape_env), {}).values()]

    def note(self, shape_env: object, condition: sympy.Basic) -> None:
        """Remembers a condition that was found true at the line that is running."""
        known = self._decisions.setdefault(id(shape_env), {})
        before = known.get(condition)
        is_known = before is not None and before.is_of_model and not before.is_hidden
        is_of_slice = (before is not None and before.is_of_slice) or _is_within(ASKING)
        if before is not None and is_of_slice != before.is_of_slice:  # an operator asked the same before
            line = before.line if before.is_of_model else model_line()
            before = known[condition] = replace(before, line=line, is_of_slice=True)
        is_known = is_known and (before is None or not before.is_test or before.is_own or not _is_asked_by_own_code())
        if before is not None and is_known and (before.is_test or not _is_answered_to_python()):
            return
        is_of_model = _asked_by_model() or is_caught()
        is_test = is_of_model and _is_answered_to_python()
        is_choice = is_test and _is_answered_to_python(("__bool__",))
        at_hand = numbers_at_hand(_frames()) if is_test and not is_choice else ()
        if before is None or (is_of_model and not before.is_of_model):
            is_hidden = is_of_model and _is_hidden()
            known[condition] = Decision(
                condition,
                model_line(),
                is_of_model,
                is_of_slice,
                is_hidden=is_hidden,
                is_test=is_test,
                is_choice=is_choice,
                at_hand=at_hand,
                in_code=numbers_at_hand(_frames()) if is_of_model else (),
            )
        elif is_of_model:
            is_hidden = before.is_hidden and _is_hidden()
            is_own_test = is_test and _is_asked_by_own_code() and not (before.is_test and before.is_own)
            known[condition] = replace(
                before,
                line=model_line() if is_own_test else before.line,
                in_code=numbers_at_hand(_frames()) if is_own_test else before.in_code,
                is_hidden=is_hidden,
                is_test=is_test or before.is_test,
                is_choice=is_choice or before.is_choice,
                at_hand=at_hand or before.at_hand,
            )


def recording_patches(record: TraceRecord) -> tuple[Patch, Patch]:
    """Patches that write to the record."""

    def record_fixed(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def set_replacement(self: Any, a: Any, tgt: Any, msg: str) -> None:
            if tgt.is_number:
                record.fixing_lines.setdefault(str(a), model_line())
            original(self, a, tgt, msg)

        return _as_of_torch(set_replacement)

    def record_decision(original: Callable[..., sympy.Basic]) -> Callable[..., sympy.Basic]:
        # Every question about a size comes through here, those that its range answers without a guard too. What is
        # behind it has a memory: of a question that an operator asked first, it would not see that the model asks it.
        @functools.wraps(original)
        def evaluate(self: Any, orig_expr: sympy.Basic, *args: Any, **kwargs: Any) -> sympy.Basic:
            value = original(self, orig_expr, *args, **kwargs)
            condition = _condition(orig_expr, value)
            if condition.free_symbols and not self._suppress_guards_tls():  # else it binds nothing
                record.note(self, condition)
            return value

        return _as_of_torch(evaluate)

    return (
        Patch(
            name="record of fixed axes",
            kind="custom",
            target=f"{_SHAPE_ENV}._set_replacement",
            reason="an axis that became a constant is reported with the line that did it",
            replace=record_fixed,
        ),
        Patch(
            name="record of decisions about sizes",
            kind="custom",
            target=f"{_SHAPE_ENV}.evaluate_expr",
            reason="what a program takes for granted of its sizes is reported with the line that asked",
            replace=record_decision,
        ),
    )


_COMPARISONS = {"_eq": sympy.Eq, "_ne": sympy.Ne, "_lt": sympy.Lt, "_le": sympy.Le, "_gt": sympy.Gt, "_ge": sympy.Ge}


def recording_of_none(record: TraceRecord) -> list[Patch]:
    """Patches that note what the model asks of sizes that may be 0, one for each comparison.

    torch 2.11 to 2.13 make these methods of `SymNode`, whose expressions are sympy's: of a positive symbol sympy knows
    at once that it is not 0, so that no question of it comes to the shape environment.
    """

    def recorded(comparison: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def record_comparison(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def compare(self: Any, other: Any) -> Any:
                answer = original(self, other)
                if answer._expr in (sympy.true, sympy.false):
                    _note_of_none(record, comparison, (self.expr, other.expr), answer._expr)
                return answer

            return _as_of_torch(compare)

        return record_comparison

    return [
        Patch(
            name=f"record of {name} of sizes",
            kind="custom",
            target=f"torch.fx.experimental.sym_node.SymNode.{name}",
            reason="what a model asks of a size of 0 is answered before torch sees it",
            replace=recorded(comparison),
        )
        for name, comparison in _COMPARISONS.items()
    ]


def _note_of_none(record: TraceRecord, comparison: Any, sides: tuple[sympy.Basic, ...], answer: sympy.Basic) -> None:
    for symbol, at_none in _at_none(comparison, sides):
        if at_none != answer and (_asked_by_model() or is_caught()):
            record.of_none.append(QuestionOfNone(symbol, model_line(), is_test=_is_compared_by_own_code()))


@functools.lru_cache(maxsize=4096)
def _at_none(comparison: Any, sides: tuple[sympy.Basic, ...]) -> tuple[tuple[str, sympy.Basic], ...]:
    """What a comparison is where one of its sizes is 0, except where that has no value, as a quotient by the size."""
    found: list[tuple[str, sympy.Basic]] = []
    for symbol in {symbol for side in sides for symbol in side.free_symbols}:
        with contextlib.suppress(ArithmeticError):
            found.append((str(symbol), comparison(*(side.subs(symbol, 0) for side in sides))))
    return tuple(found)


def with_recording(guard: _Options, record: TraceRecord, more: Sequence[Patch] = ()) -> _Options:
    """Options that record too, and install `more`.

    `stop_if_static` tells the line of a fixed axis by itself.
    """
    if not guard.patch:
        return guard
    fixed, decided = recording_patches(record)
    added = (decided,) if guard.stop_if_static else (fixed, decided)
    return replace(guard, custom_patches=(*guard.custom_patches, *added, *more))


def _as_of_torch(function: _Function) -> _Function:
    """The function under the file name of what it wraps.

    Torch takes the innermost frame outside of its own files for the user's, to tell an `assert` from a test.
    """
    wrapper: Any = function
    wrapper.__code__ = wrapper.__code__.replace(co_filename=wrapper.__wrapped__.__code__.co_filename)
    return function


def _condition(question: sympy.Basic, answer: object) -> sympy.Basic:
    """What the answer says: the question, its negation, or that it equals a number."""
    if answer is True or answer is sympy.true:  # and not 1, which equals True
        return question
    if answer is False or answer is sympy.false:
        return sympy.Not(question)
    return sympy.Eq(question, answer)


@functools.cache
def _torch_folder() -> str:
    return os.path.join(os.path.dirname(torch.__file__), "")


#: This package, and code without a file.
_OWN = (os.path.join(os.path.dirname(os.path.dirname(__file__)), ""), "<")

#: Files of torch that only pass a question on.
_PASSING = ("__init__.py", "fx/", "utils/", "_export/non_strict_utils.py", "overrides.py")


def _asked_by_model() -> bool:
    """Whether the code that asks is the model's or one of torch's public modules, which are written like models.

    Torch's own operators lie in modules whose names begin with an underscore. What they ask decides how a result is
    laid out in memory or which check it has to pass, while ONNX's operators ask again for the sizes that they get.
    """
    for file in _files():
        if file.startswith(_OWN) or file in (functools.__file__, contextlib.__file__):
            continue
        if not file.startswith(_torch_folder()):
            return True
        inner = file.removeprefix(_torch_folder())
        if not inner.startswith(_PASSING):
            return not inner.startswith(("_", "export/"))
    return False


def _is_asked_by_own_code() -> bool:
    """Whether the innermost code that is no part of torch is the user's own, and of no installed package."""
    frame = users_frame(sys._getframe())
    return frame is not None and not is_installed(frame.f_code.co_filename)


#: Bodies of the rewriting that run where tensor data says so; what a loop does is looked at before it is written, too.
_FRAMES_OF_A_TEST = 16
_HIDING = ("Run.__init__", "Run.outcome", "Loop._one_step", "Loop.while_loop.<locals>.step")


#: What Python calls where it wants to know what a symbolic number is; methods of torch.SymInt and its like.
_ANSWERS = ("__bool__", "__int__", "__index__", "__float__")


def _is_answered_to_python(answers: Container[str] = _ANSWERS) -> bool:
    """Whether it is Python code that asks.

    What an operator asks, as `view` does, is no test: the size decides how its result lies in memory.
    """
    return any(
        frame.f_code.co_name in answers and frame.f_code.co_filename == torch.__file__
        for frame in itertools.islice(_frames(), _FRAMES_OF_A_TEST)
    )


def _is_compared_by_own_code() -> bool:
    """Whether the user's own code calls an operator of `torch.SymInt` (torch 2.11 to 2.13 make them in
    `_make_user_magic`), which torch's own in C++ do not go by."""
    called = ""
    for frame in _frames():
        file = frame.f_code.co_filename
        if not file.startswith((*_OWN, _torch_folder())):
            return called.startswith("_make_user_magic.") and not is_installed(file)
        called = called if file.startswith(_OWN) else frame.f_code.co_qualname
    return False


def _is_hidden() -> bool:
    """Whether Python code tests a size in a branch or in the body of a loop that tensor data decides about."""
    return _is_answered_to_python(("__bool__",)) and any(
        frame.f_code.co_qualname in _HIDING and frame.f_globals.get("__name__", "").startswith("exportguard.rewrites.")
        for frame in _frames()
    )


def _is_within(function: str) -> bool:
    """Whether one of the innermost functions has that name."""
    return any(frame.f_code.co_name == function for frame in itertools.islice(_frames(), 16))


def _files() -> Iterator[str]:
    return (frame.f_code.co_filename for frame in _frames())


def _frames() -> Iterator[types.FrameType]:
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
