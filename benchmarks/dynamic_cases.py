"""What becomes of a module whose axes are dynamic: exported once, run at other sizes, beside eager."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from operator_samples import TOLERANCES, difference, fed, tensors_of

from exportguard import to_onnx
from exportguard.errors import ExportGuardError

Shapes = tuple[dict[int, str] | None, ...]
Sizes = Mapping[str, int]

SHOWN = ("refused", "refused unclearly", "other", "stops", "runs where eager refuses", "converted what eager refuses")


@dataclass(frozen=True)
class Outcome:
    """The worst of what becomes of a module at several sizes."""

    kind: str  #: "right", "refused", "refused unclearly", "other", "runs where eager refuses" or "stops"
    text: str = ""


def named_axes(module: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Shapes:
    """The axes that eager lets change: each by itself where it does, else all of one size together, under one name."""
    axes = [(place, axis) for place, tensor in enumerate(tensors) for axis in range(tensor.dim())]
    groups: list[list[tuple[int, int]]] = [[each] for each in axes if _size(tensors, each) > 1]
    alone = [group for group in groups if runs(module, at_sizes(tensors, *_grown(tensors, [group])))]
    rest = [each for group in groups if group not in alone for each in group]
    by_size = {size: [each for each in rest if _size(tensors, each) == size] for size in range(2, 10)}
    tied = [group for group in by_size.values() if group and runs(module, at_sizes(tensors, *_grown(tensors, [group])))]
    return _grown(tensors, [*alone, *tied])[0]


def _size(tensors: Sequence[torch.Tensor], axis: tuple[int, int]) -> int:
    return tensors[axis[0]].shape[axis[1]]


def _grown(tensors: Sequence[torch.Tensor], groups: Sequence[Sequence[tuple[int, int]]]) -> tuple[Shapes, Sizes]:
    """A name for each group, and one more than the size that it has."""
    shapes: list[dict[int, str]] = [{} for _ in tensors]
    sizes = {}
    for number, group in enumerate(groups):
        name = f"{'abcdefghijklmnopqrstuvwxyz'[number % 26] * (1 + number // 26)}{_size(tensors, group[0])}"
        sizes[name] = _size(tensors, group[0]) + 1
        for place, axis in group:
            shapes[place][axis] = name
    return tuple(shape or None for shape in shapes), sizes


def runs(module: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> bool:
    try:
        module(*tensors)
    except Exception:  # torch raises whatever it likes
        return False
    return True


def at_sizes(tensors: Sequence[torch.Tensor], shapes: Shapes, sizes: Sizes) -> list[torch.Tensor]:
    """Tensors of those sizes whose elements are those of the example, over and over."""
    grown = []
    for tensor, names in zip(tensors, shapes, strict=True):
        for axis, name in (names or {}).items():
            chosen = torch.arange(sizes[name]) % tensor.shape[axis]
            tensor = tensor.index_select(axis, chosen)
        grown.append(tensor.clone())
    return grown


def sizes_of(shapes: Shapes) -> dict[str, int]:
    """The size that each name has in the example."""
    names = {name for shape in shapes for name in (shape or {}).values()}
    return {name: int(re.sub(r"\D", "", name)) for name in names}


def other_sizes(shapes: Shapes) -> Iterator[dict[str, int]]:
    """The sizes of the example, one more of each, the double, one and nothing."""
    traced = sizes_of(shapes)
    yield traced
    if traced:
        yield {name: size + 1 + number for number, (name, size) in enumerate(traced.items())}
        yield {name: size * 2 for name, size in traced.items()}
        yield dict.fromkeys(traced, 1)
        yield dict.fromkeys(traced, 0)


def outcome(module: Callable[..., Any], tensors: Sequence[torch.Tensor], shapes: Shapes) -> Outcome:
    """What becomes of a module whose forward is called with `*tensors`."""
    given = tuple(tensor.clone() for tensor in tensors)
    try:
        module(*[tensor.clone() for tensor in tensors])
    except Exception:  # what eager refuses is refused with whatever it says
        return refusal_of(module, given, shapes)
    try:
        model = to_onnx(module, given, dynamic_shapes=(shapes,) if tensors else None)
    except ExportGuardError as error:
        return Outcome("refused", f"{type(error).__name__}: {error}")
    except Exception as error:
        return Outcome("refused unclearly", f"{type(error).__name__}: {error}")
    found = Outcome("right")
    for sizes in other_sizes(shapes):
        told = at(module, model, at_sizes(tensors, shapes, sizes), sizes)
        if told.kind == "other":
            return told
        found = found if told.kind == "right" else told
    return found


def refusal_of(module: Callable[..., Any], given: tuple[torch.Tensor, ...], shapes: Shapes) -> Outcome:
    try:
        to_onnx(module, given, dynamic_shapes=(shapes,) if given else None)
    except Exception:
        return Outcome("right")
    return Outcome("converted what eager refuses")


def at(module: Callable[..., Any], model: Any, feed: Sequence[torch.Tensor], sizes: Sizes) -> Outcome:
    """What the file does at one point, beside eager."""
    refusal = ""
    try:
        expected = tensors_of(module(*[tensor.clone() for tensor in feed]))
    except Exception as error:  # torch raises whatever it likes
        refusal = f"{type(error).__name__}: {str(error)[:150]}"
    try:
        got = fed(model, feed)
    except Exception as error:
        return Outcome("right") if refusal else Outcome("stops", f"at {dict(sizes)}: {str(error)[-300:]}")
    if refusal:
        return Outcome("runs where eager refuses", f"at {dict(sizes)}: {refusal}")
    for place, (a, b) in enumerate(zip(got, expected, strict=False)):
        text = difference(torch.as_tensor(a), b, TOLERANCES)
        if text:
            return Outcome("other", f"at {dict(sizes)}: output {place}: {text}")
    return Outcome("right")
