"""What a model asks of numbers in functions that nothing stops: of what type they are, and how they are written.

`isinstance(n, int)` and `type(n)` have the answer of Python's number wherever the model asks, for its modules, and
those of the packages that they name, get such functions for the time of a trace. `match`, `flag is True` and
`n.__class__` are more than functions: what holds them is rewritten before the first export, where a call of the model
may lead there. It is these expressions alone; the model's own functions are rewritten as a whole where `rewrite="auto"`
was asked for.

A text made of what stands for a number, as `f"layer_{n}"`, says something else than in eager mode: where it is more
than told in a message, the export stops there, so that its function is rewritten if that was asked for.
"""

from __future__ import annotations

import dis
import functools
import itertools
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from exportguard import _core
from exportguard.model_code import is_installed
from exportguard.rewrites.calls import Called
from exportguard.rewrites.in_place import InPlaceRewrite, answering
from exportguard.rewrites.kept_tables import KeptTables
from exportguard.rewrites.places import functions_of
from exportguard.rewrites.python_types import TypeOfPython, is_instance
from exportguard.rewrites.raising import asking_methods
from exportguard.rewrites.told import stopping

_STANDING_IN = (torch.SymInt, torch.SymFloat, torch.SymBool, FakeTensor)
_TEXTS = ("__str__", "__repr__", "__format__")
_BUILT_IN: dict[str, Any] = {"isinstance": is_instance, "type": TypeOfPython}
_ITSELF = ("self", "cls")
_PATTERNS = ("MATCH_CLASS", "MATCH_MAPPING", "MATCH_SEQUENCE")
_MATCHING = frozenset(dis.opmap[name] for name in _PATTERNS)
_IS = dis.opmap["IS_OP"]


# --------------------------------------------------------------------------------------------------- constructs


@dataclass(frozen=True)
class Asking:
    """Functions that run one code, with the lines where it has a `match` of types, `is True` or `….__class__`."""

    functions: Sequence[types.FunctionType]
    lines: frozenset[int]

    @property
    def code(self) -> types.CodeType:
        """What they run."""
        return self.functions[0].__code__

    @property
    def is_installed(self) -> bool:
        """Whether they are those of an installed package."""
        return is_installed(self.code.co_filename)


def asking_functions(called: Called) -> Iterator[Asking]:
    """What a call may lead to and that asks so."""
    for code, functions in called.functions.items():
        lines = frozenset(_asking_lines(code)) if _may_ask(code) else frozenset()
        if lines:
            yield Asking(functions if is_installed(code.co_filename) else functions_of(code), lines)


def answering_patches(asking: Iterable[Asking]) -> list[InPlaceRewrite]:
    """What gives these expressions the answers of eager mode and changes nothing else; where it cannot, they stay."""
    made = (answering(each.functions, each.lines) for each in asking)
    return [patch for patch in made if patch is not None]


def _may_ask(code: types.CodeType) -> bool:
    """Whether a code may ask so, found without reading its instructions one by one."""
    operations = {*code.co_code[::2]}
    is_compared = _IS in operations and any(isinstance(constant, bool) for constant in code.co_consts)
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return (
        is_compared or "__class__" in code.co_names or not _MATCHING.isdisjoint(operations) or any(map(_may_ask, inner))
    )


def _asks(before: dis.Instruction, instruction: dis.Instruction) -> bool:
    """Whether two instructions are `… is True`, or ask something but `self` for its class."""
    if instruction.opname == "IS_OP":
        return before.opname == "LOAD_CONST" and isinstance(before.argval, bool)
    return instruction.opname == "LOAD_ATTR" and instruction.argval == "__class__" and before.argval not in _ITSELF


@functools.lru_cache(maxsize=4096)
def _asking_lines(code: types.CodeType) -> tuple[int, ...]:
    found: list[int] = []
    instructions = [*dis.get_instructions(code)]
    for before, instruction in itertools.pairwise(instructions):
        if instruction.opname in _PATTERNS or _asks(before, instruction):
            found.append((instruction.positions.lineno if instruction.positions else None) or code.co_firstlineno)
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return (*found, *(line for constant in inner for line in _asking_lines(constant)))


# ------------------------------------------------------------------------------------------------------- calls


def _inverted(number: torch.SymInt) -> Any:
    return -number - 1


def _bits_of_one(number: torch.SymInt, other: object) -> Any:
    """`number ^ other`, which torch 2.11 to 2.13 trace as an operator that they allow in no program."""
    if not isinstance(other, int | torch.SymInt):
        return NotImplemented
    return (number | other) - (number & other)


def _is_one_truth(flag: torch.SymBool, other: object) -> Any:
    """`flag == other`, as a dict asks of its keys, which torch 2.11 to 2.13 ask sympy for numbers."""
    return bool(flag) == bool(other) if isinstance(other, bool | torch.SymBool) else NotImplemented


def _place_of_truth(flag: torch.SymBool) -> int:
    """`rows[flag]`"""
    return int(bool(flag))


#: Whether what stands for numbers answers in this thread.
_ANSWERED: ContextVar[bool] = ContextVar("exportguard.answered", default=False)


def is_answered() -> bool:
    """Whether `answered` is open in this thread."""
    return _ANSWERED.get()


@contextmanager
def answered(modules: Iterable[types.ModuleType]) -> Iterator[None]:
    """Lets modules know, while it is open, of what type the numbers of a trace are, and stops at texts made of them."""
    changes = _core.KeptChanges()
    stopped: list[Exception] = []
    token = _ANSWERED.set(True)
    modules = [*modules]
    kept = KeptTables(modules)
    try:
        for module in modules:
            for name, function in _BUILT_IN.items():
                if name not in vars(module):
                    changes.set_item(vars(module), name, function)
        for kind in _STANDING_IN:
            for name in _TEXTS:
                changes.set_attribute(kind, name, stopping(getattr(kind, name), stopped))
        for number, name, method in asking_methods(stopped):
            changes.set_attribute(number, name, method)
        if not hasattr(torch.SymInt, "__invert__"):  # torch 2.11 to 2.13 leave it out
            add = functools.partial(setattr, torch.SymInt, "__invert__", _inverted)
            changes.call(add, lambda: delattr(torch.SymInt, "__invert__"), "torch.SymInt.__invert__")
        changes.set_attribute(torch.SymBool, "__eq__", _is_one_truth)
        if not hasattr(torch.SymBool, "__index__"):  # torch 2.11 to 2.13 leave it out as well
            place = functools.partial(setattr, torch.SymBool, "__index__", _place_of_truth)
            changes.call(place, lambda: delattr(torch.SymBool, "__index__"), "torch.SymBool.__index__")
        for name in ("__xor__", "__rxor__"):
            if hasattr(torch.SymInt, name):
                changes.set_attribute(torch.SymInt, name, _bits_of_one)
        yield
    finally:
        changes.undo()
        _ANSWERED.reset(token)
        kept.restore()
    if stopped:  # a handler of the model took it
        raise stopped[0]
