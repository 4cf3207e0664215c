"""Functions of torch whose answer is a Python bool: `torch.equal`, `torch.allclose`, `is_nonzero`, `in`.

While a program is traced the answer is tensor data. A bool tensor stands for it, and a test of it is a test on data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from exportguard.rewrites.collected import Grown, is_open
from exportguard.rewrites.data import as_flag, depends_on_data
from exportguard.rewrites.numbers import as_number, is_number
from exportguard.rewrites.size_keys import key_in
from exportguard.rewrites.texts import require_no_text_of_data


def truth_of_tensors(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> torch.Tensor | None:
    """The answer as a number, a bool; None for other functions, and where Python knows the answer."""
    answer = _ANSWERS.get(func)
    if answer is None or not any(isinstance(argument, FakeTensor) for argument in (*args, *kwargs.values())):
        return None
    return as_number(answer(*args, **kwargs))


_NUMBERS = (bool, int, float)


def is_in(item: Any, container: Any) -> Any:
    """`item in container`; of a tensor, whether an element equals the item."""
    if isinstance(container, torch.Tensor) and isinstance(container, FakeTensor):
        return as_number((container == item).any())
    if isinstance(container, str):
        require_no_text_of_data(item)
    if isinstance(container, dict | set | frozenset):
        is_plain = not depends_on_data(item) or (isinstance(item, torch.Tensor) and not is_number(item))
        if is_plain or not all(type(key) in _NUMBERS for key in container):
            return key_in(container, item) in container
        container = tuple(container)
    if isinstance(container, Grown) and container.is_open:
        return as_number(container.equal_to(item).any())
    is_sequence = isinstance(container, list | tuple | range) and not is_open(container)
    if not is_sequence or not any(depends_on_data(value) for value in (item, *container)):
        return item in container
    found: Any = False
    for element in container:
        if element is item:
            return True
        found = torch.logical_or(as_flag(found), as_flag(element == item))
    return found


def _equal(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    if first.dim() != second.dim() or any(a != b for a, b in zip(first.shape, second.shape, strict=True)):
        return torch.zeros((), dtype=torch.bool)
    return torch.eq(first, second).all()


def _all_close(*args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.isclose(*args, **kwargs).all()


def _is_nonzero(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(()) != 0


_ANSWERS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.equal: _equal,
    torch.Tensor.equal: _equal,
    torch.allclose: _all_close,
    torch.Tensor.allclose: _all_close,
    torch.is_nonzero: _is_nonzero,
    torch.Tensor.is_nonzero: _is_nonzero,
}
