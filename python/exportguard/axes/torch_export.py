"""torch.export of a module, which is told what was asked of the sizes of its inputs."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from exportguard.dynamic_shapes import Axis, LeafShape, mirror
from exportguard.example import Example, Relation

logger = logging.getLogger(__name__)

_check: Any = torch._check


def traced(model: torch.nn.Module, example: Example, *, strict: bool) -> ExportedProgram:
    """torch.export, which knows what the names of the axes say.

    A strict export knows it from a `Dim`, which torch refuses where the model bounds the axis; a hint is taken then.
    """

    # Importing this takes a second, which torch.export takes anyway.
    from torch._dynamo.exc import UserError, UserErrorType

    def export(dims: Mapping[str, Dim]) -> ExportedProgram:
        call, shapes = example.call, for_torch(example, dims)
        return torch.export.export(model, call.args, dict(call.kwargs), dynamic_shapes=shapes, strict=strict)

    if not strict:
        with _told(model, example.relations):
            return export({})
    dims = shared_dims(example.shapes)
    try:
        return export(dims)
    except UserError as error:
        if error.error_type != UserErrorType.CONSTRAINT_VIOLATION or not dims:
            raise
        logger.info("exporting again, without telling torch that axes of one name are equal: %s", error)
    return export({})


def shared_dims(shapes: Sequence[LeafShape]) -> dict[str, Dim]:
    """A `Dim` for each name that stands on several axes, so that torch knows those to be equal."""
    uses = Counter(name for shape in shapes for name in _names(shape))
    return {name: Dim(name) for name, count in uses.items() if count > 1 and name.isidentifier()}


def for_torch(example: Example, dims: Mapping[str, Dim]) -> dict[str, Any] | None:
    """The same as torch.export takes it; None if no axis changes.

    A name becomes the `Dim` that `dims` has for it, or else `Dim.DYNAMIC`: torch then finds the axis' bounds itself
    instead of refusing the narrower ones that a model implies.
    """
    if not any(shape.axes for shape in example.shapes):
        return None
    remaining = iter(example.shapes)

    def spec(_: object) -> Any:
        shape = next(remaining)
        return _torch_spec(shape, dims)

    return {name: mirror(value, spec) for name, value in example.call.named.items()}


def _torch_spec(shape: LeafShape, dims: Mapping[str, Dim]) -> Any:
    if not isinstance(shape.leaf.value, torch.Tensor):
        return Dim.DYNAMIC if shape.axes else None  # torch takes no named Dim for a number
    return {axis: _torch_axis(asked, dims) for axis, asked in shape.axes.items()} or None


def _torch_axis(asked: Axis, dims: Mapping[str, Dim]) -> Axis:
    return dims.get(asked, Dim.DYNAMIC) if isinstance(asked, str) else asked


def _names(shape: LeafShape) -> Iterator[str]:
    if not isinstance(shape.leaf.value, torch.Tensor):
        return iter(())
    return (asked for asked in shape.axes.values() if isinstance(asked, str))


def _is_one_symbol(sizes: Sequence[torch.SymInt]) -> bool:
    """Whether torch knows already that two sizes are equal; to ask it would make nodes."""
    return len(sizes) == 2 and sizes[0].node.expr == sizes[1].node.expr


@contextlib.contextmanager
def _told(model: torch.nn.Module, relations: Sequence[Relation]) -> Iterator[None]:
    """While the block traces the model, torch knows from the beginning what the names say.

    It then takes one symbol for all sizes that are equal, and notes no guard for what follows from the names.
    """

    def tell(_: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        leaves = pytree.tree_leaves((args, dict(kwargs)))
        for relation in relations:
            sizes = [place.size(leaves) for place in (relation.place, *relation.sum_of)]
            if all(isinstance(size, torch.SymInt) for size in sizes) and not _is_one_symbol(sizes):
                _check(sizes[0] == sum(sizes[1:]))

    handle = model.register_forward_pre_hook(tell, with_kwargs=True, prepend=True)
    try:
        yield
    finally:
        handle.remove()
