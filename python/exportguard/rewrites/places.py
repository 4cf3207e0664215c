"""Where an export stopped: the user's functions that an error came through."""

from __future__ import annotations

import gc
import inspect
import linecache
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exportguard.declaration.targets import TargetMissingError, resolve
from exportguard.model_code import is_models, users_frame


@dataclass(frozen=True, kw_only=True)
class Place:
    """A line of a user's function that was running, and the lines of its callers are those of other places."""

    code: types.CodeType  # of the outermost function that defines the one that ran
    ran: types.CodeType
    line: int
    consumer: Place | None = None  # of a generator, what goes through it

    @property
    def name(self) -> str:
        return self.code.co_qualname

    def functions(self) -> list[types.FunctionType]:
        """Every function object that runs this code."""
        return functions_of(self.code)

    def __str__(self) -> str:
        text = linecache.getline(self.ran.co_filename, self.line).strip()
        return f"{self.ran.co_filename}:{self.line}: {text}"


def line_now() -> str:
    """The line of the model that runs."""
    frame = users_frame(sys._getframe(1))
    return "the model" if frame is None else f"line {frame.f_lineno} of {frame.f_code.co_filename}"


def variable_of(value: object) -> str | None:
    """The variable of the model's code, the innermost that runs, in which an object is now."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_models(frame.f_code.co_filename):
            name = next((name for name, held in frame.f_locals.items() if held is value), None)
            if name is not None:
                return name
        frame = frame.f_back
    return None


def places_of(error: BaseException) -> list[Place]:
    """Where the error came through the user's code, innermost first, then the same for what caused it."""
    found: list[Place] = []
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:  # a context may lead back to where it came from
        seen.add(id(current))
        found += places_among([*_running(current)])
        current = current.__cause__ or current.__context__
    return list({(place.ran, place.line): place for place in found}.values())


def _running(error: BaseException) -> Iterator[tuple[types.CodeType, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code, trace.tb_lineno
        trace = trace.tb_next


def places_among(running: Sequence[tuple[types.CodeType, int]]) -> list[Place]:
    """The user's places among what was running, outermost first; the result has the innermost first."""
    of_models = [(code, line) for code, line in running if is_models(code.co_filename)]
    codes = [code for code, _ in of_models]
    places: list[Place] = []
    for code, line in of_models:
        outermost = _outermost(code, codes)
        consumer = places[-1] if places and outermost.co_flags & inspect.CO_GENERATOR else None
        places.append(Place(code=outermost, ran=code, line=line, consumer=consumer))
    return places[::-1]


def _outermost(code: types.CodeType, running: Sequence[types.CodeType]) -> types.CodeType:
    """The function among those that run which defines the code, or the code itself."""
    if not code.co_flags & inspect.CO_NESTED:
        return code
    return next((outer for outer in running if outer is not code and contains(outer, code)), code)


def contains(outer: types.CodeType, code: types.CodeType) -> bool:
    """Whether `code` is that of a function, lambda or comprehension inside `outer`."""
    inner = [constant for constant in outer.co_consts if isinstance(constant, types.CodeType)]
    return any(c is code or contains(c, code) for c in inner)


# ---------------------------------------------------------------------------------------------------- by name


def functions_of(code: types.CodeType) -> list[types.FunctionType]:
    """Every function object that runs this code: a closure has one for each time that its `def` was executed."""
    found = [o for o in gc.get_referrers(code) if isinstance(o, types.FunctionType)]
    return [function for function in found if function.__code__ is code]


def dotted_path(function: types.FunctionType) -> str:
    """Where the code of a function is defined: "package.module.Class.method", "module.outer.<locals>.inner"."""
    name = function.__globals__.get("__name__", "__main__")  # `exec` gives its globals none
    return f"{name}.{function.__code__.co_qualname}"


def own_path(function: types.FunctionType) -> str:
    """Its `dotted_path`, with the line if another function goes by that path, as the second `def _` of a module."""
    path = dotted_path(function)
    if "<locals>" in path:
        return path
    try:
        codes = [found.__code__ for found in _reachable(resolve(path).raw)]
    except TargetMissingError:
        return path
    named = [code for code in codes if code.co_qualname == function.__code__.co_qualname]
    return path if not named or function.__code__ in named else f"{path}:{function.__code__.co_firstlineno}"


def functions_at(path: str) -> list[types.FunctionType]:
    """The functions whose `dotted_path` this is; none if the installed version does not have them.

    :raises TargetMissingError: the module, class or function that leads to them is not there
    """
    outer, *inner = path.split(".<locals>.")
    names = outer.split(".")
    codes = [function.__code__ for function in _reachable(resolve(outer).raw)]
    found = [code for code in codes if outer.endswith(f".{code.co_qualname}") and code.co_name == names[-1]]
    for qualname in inner:
        found = [c for code in found for c in _nested(code) if c.co_qualname.endswith(f"<locals>.{qualname}")]
    return functions_of(found[0]) if found else []


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _nested(constant)


def _reachable(value: object) -> list[types.FunctionType]:
    """The functions inside descriptors, decorators and their closures, outermost first."""
    found: dict[int, types.FunctionType] = {}
    pending = [value]
    while pending:
        current = pending.pop(0)
        if isinstance(current, staticmethod | classmethod | types.MethodType):
            pending.append(current.__func__)
        elif isinstance(current, property):
            pending.append(current.fget)
        elif isinstance(current, types.FunctionType) and id(current) not in found:
            found[id(current)] = current
            pending += [cell.cell_contents for cell in current.__closure__ or () if _is_filled(cell)]
        if hasattr(current, "__wrapped__"):
            pending.append(current.__wrapped__)
    return list(found.values())


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
