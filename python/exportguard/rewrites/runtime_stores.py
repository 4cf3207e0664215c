"""Reads from and stores into a container by an index that is a tensor itself, without asking for its value."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols, statically_known_true

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.choices import MAPPINGS, chosen_item, is_choice, put_chosen
from exportguard.rewrites.collected import Grown
from exportguard.rewrites.numbers import affine_of, is_number, number_tensor
from exportguard.rewrites.places import line_now
from exportguard.rewrites.recording import bodies_now
from exportguard.rewrites.size_keys import key_in, note_entry
from exportguard.rewrites.texts import TextOfData, by_number, require_no_text_of_data
from exportguard.source.errors import RewriteError

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


def get_item(container: object, index: object) -> Any:
    """`container[index]`, which is known as a part of it where it is one in Python."""
    if isinstance(index, TextOfData) and isinstance(container, MAPPINGS):
        container, index = by_number(container, index)  # type: ignore[arg-type]
    require_no_text_of_data(index)
    index = key_in(container, index)
    found = _got(container, index)
    if isinstance(container, torch.Tensor) and isinstance(found, torch.Tensor) and _makes_a_view(index):
        aliases_now().link(found, [container])
    return found


def _makes_a_view(index: object) -> bool:
    """Whether torch gives a part of the memory: slices and single numbers, which may be tensors."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None or part is Ellipsis or isinstance(part, slice | int | torch.SymInt) or _is_scalar_index(part)
        for part in parts
    )


def _got(container: Any, index: Any) -> Any:
    if is_choice(container, index):
        return chosen_item(container, index)
    if isinstance(container, Grown):
        return container.item(index)
    _require_no_text(container, index)
    parts = _windows(container, _in_bodies(container, index if isinstance(index, tuple) else (index,)))
    found = _row(container, parts)
    if found is None:
        return container[parts if isinstance(index, tuple) else parts[0]]
    view, row, axis, place = found
    return _got(view[row], (*row[:axis], 0, *parts[place + 1 :]))


def set_item(content: Any, container: Any, index: Any) -> None:
    """`container[index] = content`."""
    require_no_text_of_data(index)
    index = key_in(container, index)
    if is_choice(container, index):
        put_chosen(content, container, index)
        return
    note_entry(container, index, content)
    parts = _windows(container, _in_bodies(container, index if isinstance(index, tuple) else (index,)))
    found = _row(container, parts)
    if found is None:
        container[parts if isinstance(index, tuple) else parts[0]] = content
        return
    view, row, axis, place = found
    if not axis and all(isinstance(part, slice) and part == slice(None) for part in parts[place + 1 :]):
        view[row] = content.to(view.dtype) if isinstance(content, torch.Tensor) else content
        return
    changed = view[row]
    set_item(content, changed, (*row[:axis], 0, *parts[place + 1 :]))
    view[row] = changed


def update_item(name: str, container: object, index: object, operand: object) -> None:
    """`container[index] += operand`, or another operator."""
    require_no_text_of_data(index)
    index = key_in(container, index)
    updated = _UPDATES[name](_got(container, index), operand)
    if is_choice(container, index):
        put_chosen(updated, container, index, is_there=True)
    else:
        set_item(updated, container, index)


def _require_no_text(container: object, index: object) -> None:
    if isinstance(container, str | range) and is_number(index):
        raise RewriteError(
            f"{line_now()}: a Python {type(container).__name__} is indexed by a number that is known only when the "
            "program runs; make it a tensor with torch.tensor"
        )


def _in_bodies(container: object, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers of data as tensors in bodies of branches and loops: torch 2.11 to 2.13 would ask for their sign."""
    if not isinstance(container, torch.Tensor) or not bodies_now():
        return parts
    are_of_data = (isinstance(part, torch.SymInt) and has_free_unbacked_symbols(part) for part in parts)
    return tuple(number_tensor(part) if is_one else part for part, is_one in zip(parts, are_of_data, strict=True))


def _windows(container: object, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Slices between numbers of a loop as the indices that they stand for, where their length is known."""
    if not isinstance(container, torch.Tensor) or Ellipsis in [p for p in parts if not isinstance(p, torch.Tensor)]:
        return parts
    if sum(isinstance(part, slice) and _is_dynamic(part) for part in parts) != 1:
        return parts
    return tuple(
        _window(part, container.shape[axis]) if isinstance(part, slice) else part for axis, part in enumerate(parts)
    )


def _is_dynamic(part: slice) -> bool:
    return isinstance(part.start, torch.Tensor) or isinstance(part.stop, torch.Tensor)


def _window(part: slice, size: object) -> Any:
    """`i:i + 3` as three indices if `0 <= i` and `i + 3 <= size` are sure; else with bounds that torch asks for."""
    if not _is_dynamic(part):
        return part
    first, last = affine_of(part.start), affine_of(part.stop)
    is_sure = (
        first is not None
        and last is not None
        and first.root is last.root
        and first.low is not None
        and first.high is not None
        and part.step is None
        and statically_known_true(first.low + first.offset >= 0)
        and statically_known_true(first.high + last.offset <= size)
    )
    if is_sure and first is not None and last is not None:
        return part.start + torch.arange(last.offset - first.offset)
    return slice(*(_as_size(bound) for bound in (part.start, part.stop, part.step)))


def _as_size(bound: object) -> Any:
    """A bound that is a tensor as the number that torch makes of it."""
    return bound.item() if isinstance(bound, torch.Tensor) else bound


def _row(container: object, parts: tuple[Any, ...]) -> tuple[torch.Tensor, tuple[Any, ...], int, int] | None:
    """A view, the index of the row in it that the first tensor among the parts names, its axis, that part's place."""
    place = next((k for k, part in enumerate(parts) if _is_scalar_index(part)), None)
    if place is None or not isinstance(container, torch.Tensor):
        return None
    before = _spelled_out(container, parts[:place], len(parts))
    axis = sum(isinstance(part, slice) or part is None for part in before)
    view = container[before] if before else container
    return view, (*(slice(None),) * axis, parts[place].reshape(1)), axis, place


def _is_scalar_index(part: object) -> bool:
    return isinstance(part, torch.Tensor) and part.dim() == 0 and part.dtype not in (torch.bool, torch.uint8)


def _spelled_out(container: torch.Tensor, before: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """The index parts with `...` as slices."""
    filling = (slice(None),) * (container.dim() - count + 1)
    return tuple(piece for part in before for piece in (filling if part is Ellipsis else (part,)))
