"""Inputs and dynamic shapes of a model found out by watching it being called, also from within `generate`."""

from __future__ import annotations

import copy
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .arguments import require_kind
from .axes.enlarging import enlarged
from .axes.model_run import ModelRun
from .dynamic_shapes import mirror
from .emptied_caches import emptied, keeps_only_tokens
from .errors import InvalidArgumentError
from .example import Example
from .guard import torch_export_patches
from .inputs import CallInputs, Leaf, flatten_named

logger = logging.getLogger(__name__)


class ObservedCalls:
    """The calls that were seen, in order, each with a copy of its inputs."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Nothing is seen yet; `observe_inputs` fills it."""
        self._model = model
        self.calls: list[CallInputs] = []

    def example(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments to export with: those of the last call without an axis of size 0 or 1 that
        changes elsewhere; if there is none, those of the last call, enlarged along such axes.

        Raises:
            InvalidArgumentError: there was no call.
        """
        with torch_export_patches(patch=False):
            return self._example()

    def _example(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        calls = self._comparable()
        changing = [axes for _, axes in self._changing_axes(calls)]
        usable = [call for call in calls if _fits(flatten_named(call.named), changing)]
        chosen = usable[-1] if usable else self._enlarged(calls[-1])
        return chosen.args, dict(chosen.kwargs)

    def _enlarged(self, call: CallInputs) -> CallInputs:
        """The call with two or more of everything that changes: `generate` passes one token, or an empty cache.

        As it is, if the model takes none of the larger ones that are tried.
        """
        try:
            example = Example.of(call, self._dynamic_shapes())
            return enlarged(example, ModelRun(self._model, call).takes).call
        except InvalidArgumentError as error:
            logger.info("the example is left as it is: %s", error)
            return call

    def dynamic_shapes(self) -> dict[str, Any]:
        """Dynamic shapes nested like the inputs: an axis changes if its size did. Axes that always had the same size as
        each other have the same name, and one that was always the sum of two others is named so, as the mask over past
        and new tokens.

        Raises:
            InvalidArgumentError: fewer than two calls with the same parts.
        """
        with torch_export_patches(patch=False):
            return self._dynamic_shapes()

    def _dynamic_shapes(self) -> dict[str, Any]:
        calls = self._comparable()
        if len(calls) < 2:
            raise InvalidArgumentError(
                "dynamic shapes need at least two calls with the same inputs given, and of other sizes; "
                f"{len(self.calls)} calls were seen, {len(calls)} of them alike"
            )
        changing = [axes for _, axes in self._changing_axes(calls)]
        names = _names_of(dict.fromkeys(sizes for axes in changing for sizes in axes.values()))
        specs = [{axis: names[sizes] for axis, sizes in axes.items()} for axes in changing]
        remaining = iter(specs)

        def spec(value: object) -> Any:
            axes = next(remaining)
            return (axes or None) if isinstance(value, torch.Tensor) else axes.get(0)

        return {name: mirror(value, spec) for name, value in calls[-1].named.items()}

    def _comparable(self) -> list[CallInputs]:
        """The calls that gave the same inputs as the last one with past tokens; as the last one, where none has any.

        The first call of `generate` has no cache yet, or one without layers: to the model that is one of no tokens.
        """
        if not self.calls:
            raise InvalidArgumentError("the model was not called; call it, or generate, within observe_inputs")
        latest = next((call for call in reversed(self.calls) if _caches_of(call)), self.calls[-1])
        calls = [self._with_past(number, list(_caches_of(latest))) for number in range(len(self.calls))]
        parts = [[leaf.name for leaf in flatten_named(call.named)] for call in calls]
        asked = [leaf.name for leaf in flatten_named(latest.named)]
        return [call for call, names in zip(calls, parts, strict=True) if names == asked]

    def _with_past(self, number: int, names: Sequence[str]) -> CallInputs:
        """The call, where it has no past tokens with a cache of none that has the form of the next one's.

        That of a later call of the same `generate` has as many texts; the last one seen may have others. A call behind
        which none has a cache stays as it is.
        """
        call = self.calls[number]
        behind = [_caches_of(later) for later in self.calls[number + 1 :]]
        missing = {
            name: emptied(copy.deepcopy(found))
            for name in names
            if not _holds_tensors(call.named.get(name))
            and (found := next((caches[name] for caches in behind if name in caches), None)) is not None
        }
        return CallInputs.of(self._model.forward, call.args, {**call.kwargs, **missing}) if missing else call

    def _changing_axes(self, calls: Sequence[CallInputs]) -> list[tuple[Leaf, dict[int, tuple[int, ...]]]]:
        """For each leaf the axes whose size changed, with all sizes that were seen."""
        rows = [flatten_named(call.named) for call in calls]
        return [(leaves[0], _changes([_sizes(leaf.value) for leaf in leaves])) for leaves in zip(*rows, strict=True)]


def _caches_of(call: CallInputs) -> dict[str, Any]:
    """The caches of a call that keep something of every past token, by name."""
    return {name: value for name, value in call.named.items() if keeps_only_tokens(value)}


@contextmanager
def observe_inputs(model: torch.nn.Module) -> Iterator[ObservedCalls]:
    """Watches the calls of `model` until the block ends; the model is not changed.

    >>> model = torch.nn.Linear(4, 2)
    >>> with observe_inputs(model) as seen:
    ...     _ = model(torch.zeros(2, 4)), model(torch.zeros(5, 4))
    >>> seen.dynamic_shapes()
    {'input': {0: 'd0'}}
    """
    require_kind("model", model, torch.nn.Module, "a torch.nn.Module")
    observed = ObservedCalls(model)

    def hook(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = CallInputs.of(model.forward, args, {name: value for name, value in kwargs.items() if value is not None})
        # A cache grows in place while the model runs.
        observed.calls.append(call.mapped(copy.deepcopy))

    handle = model.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield observed
    finally:
        handle.remove()


def _holds_tensors(value: object) -> bool:
    return any(isinstance(leaf.value, torch.Tensor) for leaf in flatten_named(value))


def _sizes(value: object) -> tuple[int, ...]:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else ()


def _changes(shapes: Sequence[tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    if len({len(shape) for shape in shapes}) != 1:
        return {}
    by_axis = {axis: tuple(shape[axis] for shape in shapes) for axis in range(len(shapes[0]))}
    return {axis: sizes for axis, sizes in by_axis.items() if len(set(sizes)) > 1}


def _fits(leaves: Sequence[Leaf], changing: Sequence[dict[int, tuple[int, ...]]]) -> bool:
    """Whether every axis that changes has at least two elements: torch.export turns 0 and 1 into constants."""
    return all(
        _sizes(leaf.value)[axis] > 1
        for leaf, axes in zip(leaves, changing, strict=True)
        if isinstance(leaf.value, torch.Tensor)
        for axis in axes
    )


_FEWEST = 3  # different pairs of sizes that a sum was seen for


def _names_of(seen: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], str]:
    """A name for what an axis measured in each call, `d1+d4` for the sum of two others."""
    sizes = list(seen)
    sums = {total: parts for total in sizes if (parts := _parts(total, sizes)) is not None}
    names = {size: f"d{number}" for number, size in enumerate(size for size in sizes if size not in sums)}

    def name(size: tuple[int, ...]) -> str:
        return "+".join(map(name, sums[size])) if size in sums else names[size]

    return {size: name(size) for size in sizes}


def _parts(total: tuple[int, ...], sizes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Two others that it is the sum of in every call; of sums that few calls show nothing is said."""
    for part, other in itertools.combinations(sizes, 2):
        pairs = set(zip(part, other, strict=True))
        if len(pairs) >= _FEWEST and all(a + b == c for a, b, c in zip(part, other, total, strict=True)):
            return part, other
    return None
