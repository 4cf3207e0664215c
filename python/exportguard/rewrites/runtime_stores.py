"""Reads from and stores into a container by an index that is a tensor itself, without asking for its value."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.choices import MAPPINGS, chosen_item, is_choice, put_chosen
from exportguard.rewrites.collected import Grown, is_open
from exportguard.rewrites.data import depends_on_data
from exportguard.rewrites.index_parts import (
    beside_masks,
    holds_open_lists,
    is_all,
    is_entry,
    is_of_the_run,
    parts_of,
    spelled_out,
    step_of,
    viewed,
    with_windows,
)
from exportguard.rewrites.numbers import is_number, number_tensor
from exportguard.rewrites.places import line_now
from exportguard.rewrites.recording import bodies_now
from exportguard.rewrites.size_keys import key_in, note_entry
from exportguard.rewrites.sized_lists import Filling, Unfilled
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
        part is None or part is Ellipsis or isinstance(part, slice | int | torch.SymInt) or is_entry(part)
        for part in parts
    )


def _got(container: Any, index: Any) -> Any:
    if is_choice(container, index):
        return chosen_item(container, index)
    if isinstance(container, Grown):
        return container.item(index)
    _require_no_text(container, index)
    entries = _entries(container, index)
    return container[index] if entries is None else _read(*entries)


def is_none_at(container: Any, index: Any) -> Any:
    """`container[index] is None`, which of a list of Nones that a loop fills is a truth value of the run."""
    parts = container.parts if is_open(container) else []
    if len(parts) == 1 and isinstance(parts[0], Unfilled | Filling):
        return parts[0].is_none_at(index)
    return get_item(container, index) is None


def is_none_in(container: object, drawn: object) -> bool:
    """`drawn is None` of what is drawn from a list.

    :raises RewriteError: the list may have some elements that are None
    """
    if is_open(container) and any(isinstance(part, Unfilled | Filling) for part in container.parts):  # type: ignore[attr-defined]
        raise RewriteError(
            f"{line_now()}: an element of a list of as many None as a size says is asked whether it is None where a "
            "loop draws it; ask for it by its number (`out[i] is None`), or have a mask of what was put there"
        )
    return drawn is None


def filled_ones(container: Any) -> Any:
    """The elements of a list that are not None."""
    parts = container.parts if is_open(container) else []
    if len(parts) == 1 and isinstance(parts[0], Filling):
        return Grown([parts[0].those_there()])
    if any(isinstance(part, Unfilled | Filling) for part in parts[1:]):
        raise RewriteError(
            f"{line_now()}: what is appended to a list of Nones that a size makes cannot be told from them"
        )
    return [] if parts and isinstance(parts[0], Unfilled) else [one for one in container if one is not None]


def set_item(content: Any, container: Any, index: Any) -> None:
    """`container[index] = content`."""
    require_no_text_of_data(index)
    index = key_in(container, index)
    if is_choice(container, index):
        put_chosen(content, container, index)
        return
    note_entry(container, index, content)
    if isinstance(container, torch.Tensor) and is_number(content):  # whose dtype torch compares beside tensors
        content = content.to(container.dtype)
    entries = _entries(container, index)
    if entries is None:
        container[index] = content
    else:
        _write(content, *entries)


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


def _require_known_steps(index: object) -> None:
    """Refuses `x[a:b:k]` with a `k` that only the run knows: no operator of a graph takes such a step."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, slice) and depends_on_data(part.step) for part in parts):
        raise RewriteError(
            f"{line_now()}: a slice has a step that only the run knows; say by a mask which rows are meant: "
            "at = torch.arange(len(x)), x[(at >= start) & ((at - start) % step == 0)]"
        )


def _in_bodies(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers of data as tensors in bodies of branches and loops: torch 2.11 to 2.13 would ask for their sign."""
    if not bodies_now():
        return parts
    are_of_data = (isinstance(part, torch.SymInt) and has_free_unbacked_symbols(part) for part in parts)
    return tuple(number_tensor(part) if is_one else part for part, is_one in zip(parts, are_of_data, strict=True))


def _entries(container: object, index: Any) -> tuple[torch.Tensor, tuple[Any, ...]] | None:
    """A view and an index of the entries that are meant in it; None if torch knows the index as it is."""
    if not isinstance(container, torch.Tensor):
        return None
    _require_known_steps(index)
    parts = _in_bodies(parts_of(index))
    if not any(map(is_of_the_run, parts)) and not holds_open_lists(index):
        return None
    container, parts = spelled_out(container, parts)
    return container, with_windows(container, parts)


def _read(container: torch.Tensor, parts: tuple[Any, ...]) -> torch.Tensor:
    """What entries and windows name, one after the other, and then what tensors and masks choose in that."""
    while (step := step_of(container, parts)) is not None:
        container, parts = step.view[step.rows], step.rest
    view, choosing = viewed(container, parts)
    return view if is_all(choosing) else view[beside_masks(choosing)]


def _write(content: Any, container: torch.Tensor, parts: tuple[Any, ...]) -> None:
    """Changes a copy of the rows that an entry or a window names, and puts it back."""
    step = step_of(container, parts)
    if step is None:
        view, choosing = viewed(container, parts)
        view[beside_masks(choosing) or ...] = content
    elif step.is_direct:
        step.view[step.rows] = _typed(content, container.dtype)
    else:
        changed = step.view[step.rows]
        _write(content, changed, step.rest)
        step.view[step.rows] = changed


def _typed(content: Any, dtype: torch.dtype) -> Any:
    """What is written, where the dtype of what it is written into is not made by itself."""
    if isinstance(content, torch.SymInt | torch.SymFloat | torch.SymBool):
        content = number_tensor(content)
    return content.to(dtype) if isinstance(content, torch.Tensor) else content
