"""Reads from and stores into a tensor by an index that is a tensor itself, without asking for its value; numbers that
became tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from exportguard.rewrites.numbers import as_number, is_number

_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.iadd,
    "Sub": operator.isub,
    "Mult": operator.imul,
    "Div": operator.itruediv,
    "FloorDiv": operator.ifloordiv,
    "Mod": operator.imod,
    "Pow": operator.ipow,
    "MatMult": operator.imatmul,
    "BitAnd": operator.iand,
    "BitOr": operator.ior,
    "BitXor": operator.ixor,
    "LShift": operator.ilshift,
    "RShift": operator.irshift,
}


def get_item(container: Any, index: Any) -> Any:
    """`container[index]`."""
    parts = index if isinstance(index, tuple) else (index,)
    found = _row(container, parts)
    if found is None:
        return container[index]
    view, row, axis, place = found
    return get_item(view[row], (*row[:axis], 0, *parts[place + 1 :]))


def set_item(content: Any, container: Any, index: Any) -> None:
    """`container[index] = content`."""
    parts = index if isinstance(index, tuple) else (index,)
    found = _row(container, parts)
    if found is None:
        container[index] = content
        return
    view, row, axis, place = found
    changed = view[row]
    set_item(content, changed, (*row[:axis], 0, *parts[place + 1 :]))
    view[row] = changed


def update_item(name: str, container: Any, index: Any, operand: Any) -> None:
    """`container[index] += operand`, or another operator."""
    set_item(_UPDATES[name](get_item(container, index), operand), container, index)


def _row(container: Any, parts: tuple[Any, ...]) -> tuple[torch.Tensor, tuple[Any, ...], int, int] | None:
    """A view, the index of the row in it that the first tensor among the parts names, its axis, that part's place."""
    place = next((k for k, part in enumerate(parts) if _is_scalar_index(part)), None)
    if place is None or not isinstance(container, torch.Tensor):
        return None
    before = _spelled_out(container, parts[:place], len(parts))
    axis = sum(isinstance(part, slice) or part is None for part in before)
    view = container[before] if before else container
    return view, (*(slice(None),) * axis, parts[place].reshape(1)), axis, place


def augmented(name: str, current: Any, operand: Any) -> Any:
    """`current += operand`, or another operator; a number that a loop carries as a tensor is not changed in place."""
    if not is_number(current):
        return _UPDATES[name](current, operand)
    return as_number(_UPDATES[name](current.clone(), operand))


def _is_scalar_index(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.dim() == 0 and part.dtype not in (torch.bool, torch.uint8)


def _spelled_out(container: torch.Tensor, before: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """The index parts with `...` as slices."""
    filling = (slice(None),) * (container.dim() - count + 1)
    return tuple(piece for part in before for piece in (filling if part is Ellipsis else (part,)))
