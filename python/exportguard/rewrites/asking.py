"""What a model asks of numbers in functions that nothing stops: of what type they are, and how they are written.

`isinstance(n, int)` and `type(n)` have the answer of Python's number wherever the model asks, for its modules, and
those of the packages that they name, get such functions for the time of a trace. `match`, `flag is True` and
`n.__class__` are more than functions: what holds them is rewritten before the first export, in the model's own modules
as a whole, in those of installed packages these expressions alone, and only where a call of the model may lead there.
A text made of what stands for a number, as `f"layer_{n}"`, says something else than in eager mode: where it is more
than told in a message, the export stops there, so that its function is rewritten if that was asked for.
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from exportguard import _core
from exportguard.errors import TextOfASymbolError
from exportguard.model_code import is_installed, is_users_module
from exportguard.rewrites.calls import Called
from exportguard.rewrites.python_types import TypeOfPython, is_instance
from exportguard.rewrites.reach import all_names
from exportguard.rewrites.told import stopping

_STANDING_IN = (torch.SymInt, torch.SymFloat, torch.SymBool, FakeTensor)
_TEXTS = ("__str__", "__repr__", "__format__")
_BUILT_IN: dict[str, Any] = {"isinstance": is_instance, "type": TypeOfPython}
_ITSELF = ("self", "cls")
_NAMING = (type, types.FunctionType)
_PATTERNS = ("MATCH_CLASS", "MATCH_MAPPING", "MATCH_SEQUENCE")
_MATCHING = frozenset(dis.opmap[name] for name in _PATTERNS)


def modules_of(model: object, called: Called) -> list[types.ModuleType]:
    """The modules of a model's classes and of what it may call, and those whose functions and classes they name, but
    none of torch."""
    classes = {type(module) for module in model.modules()} if isinstance(model, torch.nn.Module) else set()
    pending = [base.__module__ for kind in classes for base in kind.__mro__]
    pending += [function.__module__ for functions in called.values() for function in functions[:1]]
    found: dict[str, types.ModuleType] = {}
    while pending:
        name = pending.pop()
        module = sys.modules.get(name)
        if module is None or name in found or not is_users_module(module):
            continue
        found[name] = module
        pending += {_module_name(value) for value in vars(module).values()}
    return list(found.values())


def own_among(modules: Iterable[types.ModuleType]) -> list[types.ModuleType]:
    """Those modules that lie in no installed package."""
    return [module for module in modules if not is_installed(getattr(module, "__file__", None) or "")]


def _module_name(value: object) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__
    name = getattr(value, "__module__", None) if isinstance(value, _NAMING) else None
    return name if isinstance(name, str) else ""


# --------------------------------------------------------------------------------------------------- constructs


def asking_functions(
    model: object, modules: Sequence[types.ModuleType]
) -> Iterator[tuple[types.CodeType, frozenset[int]]]:
    """The code of functions of these modules that a model leads to, and that hold a `match` of types, `is True`,
    `type(…)` or `….__class__`, with the lines where they do."""
    for code in _codes_reached(model, modules):
        lines = frozenset(_asking_lines(code))
        if lines:
            yield code, lines


def asking_in_packages(called: Called) -> Iterator[tuple[list[types.FunctionType], frozenset[int]]]:
    """The same for functions of installed packages: those that a call of the model may lead to, each with all that run
    its code."""
    for code, functions in called.items():
        lines = frozenset(_asking_lines(code)) if is_installed(code.co_filename) and _may_ask(code) else frozenset()
        if lines:
            yield functions, lines


def _may_ask(code: types.CodeType) -> bool:
    """Whether a code may ask so, found without reading its instructions one by one."""
    asks = not {"type", "__class__"}.isdisjoint(code.co_names) or any(isinstance(c, bool) for c in code.co_consts)
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return asks or not _MATCHING.isdisjoint(code.co_code[::2]) or any(map(_may_ask, inner))


def _codes_reached(model: object, modules: Sequence[types.ModuleType]) -> Iterator[types.CodeType]:
    """The code of a model's methods, and of what their names stand for in their modules."""
    names = {module.__name__ for module in modules}
    kinds = {type(module) for module in model.modules()} if isinstance(model, torch.nn.Module) else set()
    pending: list[Any] = [base for kind in kinds for base in kind.__mro__]
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if id(value) in seen or getattr(value, "__module__", None) not in names:
            continue
        seen.add(id(value))
        if isinstance(value, type):
            pending += [
                function for member in [*vars(value).values()] if (function := _function_of(member)) is not None
            ]
            continue
        function = _function_of(value)
        if function is not None:
            yield function.__code__
            pending += _named_by(function)


def _named_by(function: types.FunctionType) -> Iterator[Any]:
    names = all_names(function.__code__)
    for name in names:
        value = function.__globals__.get(name)
        yield value
        if isinstance(value, types.ModuleType):
            yield from (vars(value)[inner] for inner in names & vars(value).keys())


def _function_of(value: object) -> types.FunctionType | None:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    inner = inspect.unwrap(value) if isinstance(value, types.FunctionType) else None
    return inner if isinstance(inner, types.FunctionType) else None


def _asks(before: dis.Instruction, instruction: dis.Instruction) -> bool:
    """Whether two instructions are `… is True`, or ask something but `self` for its type."""
    if instruction.opname == "IS_OP":
        return before.opname == "LOAD_CONST" and isinstance(before.argval, bool)
    if instruction.argval == "__class__":
        return instruction.opname == "LOAD_ATTR" and before.argval not in _ITSELF
    return before.opname == "LOAD_GLOBAL" and before.argval == "type" and instruction.argval not in _ITSELF


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


@contextmanager
def answered(modules: Iterable[types.ModuleType]) -> Iterator[None]:
    """Lets modules know, while it is open, of what type the numbers of a trace are, and stops at texts made of them."""
    changes = _core.KeptChanges()
    stopped: list[TextOfASymbolError] = []
    try:
        for module in modules:
            for name, function in _BUILT_IN.items():
                if name not in vars(module):
                    changes.set_item(vars(module), name, function)
        for kind in _STANDING_IN:
            for name in _TEXTS:
                changes.set_attribute(kind, name, stopping(getattr(kind, name), stopped))
        if not hasattr(torch.SymInt, "__invert__"):  # torch 2.11 to 2.13 leave it out
            add = functools.partial(setattr, torch.SymInt, "__invert__", _inverted)
            changes.call(add, lambda: delattr(torch.SymInt, "__invert__"), "torch.SymInt.__invert__")
        yield
    finally:
        changes.undo()
    if stopped:  # a handler of the model took it
        raise stopped[0]
