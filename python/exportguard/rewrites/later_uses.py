"""Whether somebody may use an object again: who holds it, and whether the code that runs reads it behind its line.

From an object the search goes to what holds it, as the garbage collector knows it, and on through containers, variables
that functions share and this package's own objects. It is used again if it leads to a variable that a function on the
stack reads later, to a function that is called again, or to anything else: an attribute of an object of the model's, a
class, a module.
"""

from __future__ import annotations

import dis
import functools
import gc
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from exportguard.model_code import is_models

_PASSED = (types.CellType, tuple, list, dict, set, types.FunctionType)
_MOST = 64  # holders at one distance, beyond which an object counts as used
_OWN = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT")
_JUMPS_ALWAYS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")


def later_use(objects: Iterable[Any], known: Iterable[Any] = ()) -> str | None:
    """Who may use one of some objects, other than the caller, behind the line that runs; None if nobody may.

    :param known: objects of the caller's that hold them
    """
    frames = [*_frames(sys._getframe(1))]
    level = [*objects]
    met = {id(item): item for item in [*known, frames, *map(_locals_of_models, frames), *level]}
    while level:
        user = next(filter(None, (_reader(level, frame) for frame in frames)), None)
        user = user or next((f"the function {item.__name__}" for item in level if _is_called(item, frames)), None)
        if user is not None:
            return user
        level = _holders(level, met)
        keeper = next((holder for holder in level if not _is_passed(holder)), None)
        if keeper is not None or len(level) > _MOST:
            return f"a {type(keeper or level[0]).__name__} that holds it"
    return None


def _holders(items: list[Any], met: dict[int, Any]) -> list[Any]:
    """What holds one of some objects and was not met yet, without the lists and dictionaries of the search."""
    own = (id(items), id(met))
    found = [holder for holder in gc.get_referrers(*items) if id(holder) not in met and id(holder) not in own]
    met.update((id(holder), holder) for holder in found)
    return [holder for holder in found if not isinstance(holder, types.FrameType) and not _runs(holder)]


def _frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _locals_of_models(frame: types.FrameType) -> Any:
    """The variables of a function of the model's: up to Python 3.12 one dictionary, which holds them from here on."""
    return frame.f_locals if is_models(frame.f_code.co_filename) else None


def _runs(holder: object) -> bool:
    """Whether it is a generator that is on the stack."""
    return isinstance(holder, types.GeneratorType) and holder.gi_running


def _is_passed(holder: object) -> bool:
    """Whether it is used by who holds it alone."""
    if isinstance(holder, dict):
        return "__builtins__" not in holder and "__module__" not in holder  # the names of a module or a class
    return isinstance(holder, _PASSED) or _is_iterator_of_python(holder) or _is_own(holder)


def _is_iterator_of_python(holder: object) -> bool:
    return hasattr(type(holder), "__next__") and not hasattr(holder, "__dict__")


def _is_own(holder: object) -> bool:
    return type(holder).__module__.partition(".")[0] == "exportguard"


def _is_called(item: object, frames: Iterable[types.FrameType]) -> bool:
    """Whether a function of the model's runs, or this package has it to call it."""
    if not isinstance(item, types.FunctionType) or not is_models(item.__code__.co_filename):
        return False
    return any(
        frame.f_code is item.__code__
        or (frame.f_code.co_filename.startswith(_OWN) and _holds(frame.f_locals.values(), item))
        for frame in frames
    )


def _holds(values: Iterable[Any], item: object) -> bool:
    return any(value is item for value in values)


def _reader(items: Iterable[Any], frame: types.FrameType) -> str | None:
    """The variable in which a function of the model's has one of some objects, and which it reads behind its line."""
    if not is_models(frame.f_code.co_filename):
        return None
    wanted = {id(item) for item in items}
    held: Mapping[str, Any] = frame.f_locals
    names = [name for name, value in held.items() if id(value) in wanted]
    return next((f"`{name}`" for name in names if _reads(frame.f_code, frame.f_lasti, name)), None)


def _reads(code: types.CodeType, offset: int, name: str) -> bool:
    """Whether code may read a variable behind an instruction before it gives it another value."""
    instructions, following = _flow(code)
    running = max(place for place in following if place <= offset)  # what an instruction notes for itself follows it
    pending, met = [*following[running]], set[int]()
    while pending:
        place = pending.pop()
        if place in met:
            continue
        met.add(place)
        instruction = instructions[place]
        names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        is_of_it = name in names and ("FAST" in instruction.opname or instruction.opname in _OF_CELLS)
        if is_of_it and "LOAD" in instruction.opname:
            return True
        if not is_of_it or instruction.opname != "STORE_FAST":
            pending += following[place]
    return False


_OF_CELLS = ("LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_NAME")


@functools.lru_cache(maxsize=64)
def _flow(code: types.CodeType) -> tuple[dict[int, dis.Instruction], dict[int, list[int]]]:
    """The instructions of code by their offsets, and which ones may follow each: the next one, where it jumps to, and
    the handlers around it."""
    made = [*dis.get_instructions(code)]
    following: dict[int, list[int]] = {}
    for place, instruction in enumerate(made):
        is_jump = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
        goes_on = instruction.opname not in (*_ENDS, *_JUMPS_ALWAYS) and place + 1 < len(made)
        following[instruction.offset] = [
            *([instruction.argval] if is_jump else []),
            *([made[place + 1].offset] if goes_on else []),
        ]
    for entry in vars(dis.Bytecode(code))["exception_entries"]:  # from Python 3.11 on, and in no stub
        for offset in range(entry.start, entry.end + 1, 2):
            if offset in following:
                following[offset].append(entry.target)
    return {instruction.offset: instruction for instruction in made}, following
