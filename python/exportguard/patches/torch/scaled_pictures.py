"""`interpolate` and adaptive pools to sizes that data give: torch asks whether there is one row, and any at all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch, not_needed

_Function = Callable[..., Any]

# How far the rows that are read lie apart, in torch 2.11 to 2.13.
_SCALE = "torch._decomp.decompositions._compute_scale"
_INTERPOLATES = "torch.nn.functional.interpolate"
_POOLS = tuple(f"torch.nn.functional.adaptive_avg_pool{rank}d" for rank in (2, 3))

_AVERAGES = {2: torch.ops.aten._adaptive_avg_pool2d.default, 3: torch.ops.aten._adaptive_avg_pool3d.default}

# Without annotations in torch 2.11 to 2.13.
_check: _Function = torch._check
_sym_max: _Function = torch.sym_max


def _without_question(original: _Function) -> _Function:
    """Of a single row the first one is read, however far apart they lie."""

    @functools.wraps(original)
    def scale(in_size: Any, out_size: Any, align_corners: bool, scale: Any = None) -> Any:
        if not align_corners or not isinstance(out_size, torch.SymInt):
            return original(in_size, out_size, align_corners, scale)
        return (in_size - 1.0) / _sym_max(out_size - 1, 1)

    return scale


def _told(original: _Function) -> _Function:
    """Tells torch what eager takes: sizes from 1 on."""

    @functools.wraps(original)
    def interpolate(input: torch.Tensor, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        for one in _sizes_of_data([size]):
            _check(one >= 1)
        return original(input, size, *args, **kwargs)

    return interpolate


def _averaged(original: _Function) -> _Function:
    """Averages of parts, by the operator that does not ask whether there is one part alone."""

    @functools.wraps(original)
    def pool(input: torch.Tensor, output_size: Any) -> Any:
        of_data = [*_sizes_of_data([output_size])]
        if not of_data:
            return original(input, output_size)
        for one in of_data:
            _check(one >= 0)
        rank = 3 if original.__name__.endswith("3d") else 2
        sizes = output_size if isinstance(output_size, list | tuple) else [output_size] * rank
        kept = input.shape[-rank:]
        return _AVERAGES[rank](input, [old if new is None else new for new, old in zip(sizes, kept, strict=True)])

    return pool


def _sizes_of_data(values: Iterable[object]) -> Iterator[torch.SymInt]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _sizes_of_data(value)
        elif isinstance(value, torch.SymInt) and not value.node.has_hint():
            yield value


PATCHES = (
    Patch(
        name="scales of pictures",
        kind="torch",
        target=_SCALE,
        reason="whether a picture is scaled to one row is asked of its size, and data that give it stop the export",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_decomp/decompositions.py",
        probe=expecting(
            Expected(path=_SCALE, has=("$scale if out_size > 1 else 0",)),
            otherwise=not_needed("torch asks the sizes of pictures nothing"),
        ),
        replace=_without_question,
    ),
    Patch(
        name="sizes that data give to pictures",
        kind="torch",
        target=_INTERPOLATES,
        reason="whether a picture has a row is asked of its size, and data that give it stop the export",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_meta_registrations.py",
        probe=expecting(Expected(path=_INTERPOLATES, parameters="input, size, ...")),
        replace=_told,
    ),
    Patch(
        name="parts that data count",
        kind="torch",
        target=_POOLS,
        reason="whether a picture is averaged as one part is asked of a size, and data that give it stop the export",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/AdaptiveAveragePooling.cpp",
        probe=expecting(*(Expected(path=path, parameters="input, output_size") for path in _POOLS)),
        replace=_averaged,
    ),
)
