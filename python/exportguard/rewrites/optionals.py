"""A variable that may be None where tensor data say so: a value, and beside it whether it is there."""

from __future__ import annotations

import dis
import sys
import types
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.carrying import NUMBERS, kind_of
from exportguard.rewrites.checks import check_data
from exportguard.rewrites.collected import register
from exportguard.rewrites.contents import Bookkeeping
from exportguard.rewrites.data import as_flag, depends_on_data, describe
from exportguard.rewrites.ends_of_runs import entries
from exportguard.rewrites.engine import is_rewritten
from exportguard.rewrites.lent import may_change
from exportguard.rewrites.logic import not_
from exportguard.rewrites.nothing import NOTHING, NoneMetError
from exportguard.rewrites.numbers import number_tensor
from exportguard.rewrites.places import line_now
from exportguard.rewrites.raising import require_no_handler
from exportguard.source.errors import RewriteError

#: What rewritten code makes of a call: of any other one nobody knows that it may give None.
_KNOWS = frozenset(("asked", "dropped", "stored", "sure"))
#: What runs between a module that is called and its `forward`, or a function and what `torch.no_grad()` makes of it.
_OF_A_CALL = (
    *("torch/nn/modules/module.py", "torch/fx/_symbolic_trace.py", "torch/fx/experimental/proxy_tensor.py"),
    *("torch/utils/_contextlib.py", "exportguard/repeats/tracing.py", "exportguard/patches/torch/raised_calls.py"),
)


@dataclass(frozen=True)
class Perhaps(Bookkeeping):
    """What a function returns that may be None, for rewritten code that asks."""

    value: Any
    is_there: Any

    def __bool__(self) -> bool:
        raise _of_none(self.value, "what asks for its truth")


def perhaps(pair: tuple[Any, Any]) -> Any:
    """What a function returns, of its value and whether it is there.

    :raises NoneMetError: data decide, and what called the function is not rewritten to know
    """
    value, is_there = pair
    if not depends_on_data(is_there):
        return value if is_there else None
    if not _is_known_to(sys._getframe(1).f_back):
        raise _of_none(value, "what cannot take both")
    return Perhaps(value, is_there)


def _of_none(value: Any, taker: str) -> NoneMetError:
    return NoneMetError(
        f"{line_now()}: a function returns None where tensor data say so, and {describe(value)} elsewhere, to {taker}: "
        "return the value, such as one of zeros, and beside it a flag"
    )


def _is_known_to(frame: types.FrameType | None) -> bool:
    """Whether a frame has called a function in code that asks whether it gave None."""
    while frame is not None and frame.f_code.co_filename.endswith(_OF_A_CALL):
        module = frame.f_locals.get("self")
        if isinstance(module, torch.nn.Module) and module._forward_hooks:  # a hook does not know
            return False
        frame = frame.f_back
    if frame is None:
        return False
    return is_rewritten(frame.f_code) and _is_wrapped(frame.f_code, frame.f_lasti)


def _is_wrapped(code: types.CodeType, place: int) -> bool:
    """Whether the instruction that runs is a call which one of `_KNOWS` stands around: it ends where that one does, for
    which the source has no place of its own. A built-in function that calls back, `max(x, key=f)`, has none around it.
    """
    instructions = [*dis.get_instructions(code)]
    running = next(one for one in reversed(instructions) if one.offset <= place)  # caches are behind their instruction
    end = _end_of(running)
    if not running.opname.startswith("CALL") or end is None:
        return False
    return any(_end_of(one) == end for one in instructions if isinstance(one.argval, str) and one.argval in _KNOWS)


def _end_of(instruction: dis.Instruction) -> tuple[int, int] | None:
    """Where what an instruction is of ends in the source: each call has a parenthesis of its own."""
    where = instruction.positions
    known = where is not None and where.end_lineno is not None and where.end_col_offset is not None
    return (where.end_lineno, where.end_col_offset) if known else None  # type: ignore[union-attr, return-value]


def apart_from_none(value: Any) -> tuple[Any, Any]:
    """A value, and whether it is one: what stands for None can meet a number or a tensor behind a test."""
    if isinstance(value, Perhaps):
        return value.value, value.is_there
    return (NOTHING, False) if value is None or value is NOTHING else (value, True)


def is_none(value: Any) -> Any:
    """Whether what a function returned is None."""
    if not isinstance(value, Perhaps):
        return value is None
    return not_(value.is_there)


def asked(value: Any) -> Any:
    """What a function returned, of which it is asked at once whether it is None."""
    return value


def sure(value: Any) -> Any:
    """What a function returned, where it is read: a run ends where it is None."""
    return given(value.value, value.is_there) if isinstance(value, Perhaps) else value


def stored(value: Any) -> Any:
    """What a function returned and something is to hold, which Python would let be None.

    :raises NoneMetError: data decide whether it is
    """
    if isinstance(value, Perhaps):
        raise _of_none(value.value, "a list, a tuple or a dict")
    return value


def dropped(value: Any) -> None:
    """What a function returned, where nobody reads it."""


def given(value: Any, is_there: Any) -> Any:
    """The value of a variable that is read; a run ends where it is None, which no graph has.

    :raises RewriteError: the model may catch what Python raises then, or the value may be changed in place
    """
    if not depends_on_data(is_there):
        return value if is_there else None
    leaves = pytree.tree_leaves(value)
    if may_change(value) or not all(isinstance(leaf, torch.Tensor | NUMBERS) for leaf in leaves):
        raise RewriteError(
            f"{line_now()}: {describe(value)} is read from a variable that may be None where tensor data say so; let "
            "it be tensors, numbers, or a tuple of those, or give it an empty one in place of None"
        )
    require_no_handler(TypeError, "what has no meaning for None")
    check_data(is_there)  # so that nothing reads it where Python would not: a file keeps the index alone
    place = torch.where(as_flag(is_there), 0, 1).reshape(1)
    return pytree.tree_map(lambda leaf: _at(leaf, place), value)


def held(value: Any, is_there: Any, name: str) -> Any:
    """The value of a variable that a container is to hold, or a function is handed: None is no error there.

    :raises RewriteError: data decide whether it is None
    """
    if depends_on_data(is_there):
        raise RewriteError(
            f"{line_now()}: `{name}` is None where tensor data say so, and {describe(value)} elsewhere; it is handed "
            "to a function, or held by a list, a tuple, a dict or an attribute, which would take both: test it before, "
            f"`if {name} is None`, or hand on a value such as one of zeros, and beside it a flag"
        )
    return value if is_there else None


def _at(leaf: Any, place: torch.Tensor) -> Any:
    """The same, of a run that goes on only if the place is 0."""
    made = kind_of(leaf).standing_for(entries(number_tensor(leaf).unsqueeze(0), place).squeeze(0))
    if isinstance(leaf, torch.Tensor):  # for Python it is the tensor itself
        aliases_now().link(made, [leaf])
    return made


register(Perhaps, lambda item: [item.value, item.is_there], lambda parts: Perhaps(*parts))
