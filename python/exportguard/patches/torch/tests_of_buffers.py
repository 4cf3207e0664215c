"""Tests on what a buffer holds that no call writes: `if self.probabilities[i] > 0`.

A trace has no data, and torch.export stops there. Where nothing but buffers is asked, and the call writes none of them,
every call of the program asks the same numbers: the export that stopped is made again, and they are what the buffers
hold. What a call writes, before the test or behind it, stays data.
"""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch, by_target
from exportguard.patches.torch.module_state import state_before_export
from exportguard.repeats.plan import repeats_planned

logger = logging.getLogger(__name__)

_EXPORT = "torch.export._trace._non_strict_export"
_FAKES = "torch.export._trace._fakify_params_buffers"
_CALL = "torch.fx.experimental.proxy_tensor.proxy_call"

_READS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)
_LONGEST = 2**16  # elements of a value on the way from the buffers to the number that is asked
_STEPS = 256  # operators on that way


class _WrittenError(Exception):
    """The call writes a buffer that a test was decided by."""


class _UnknownError(Exception):
    """Something else than buffers is asked."""


@dataclass(eq=False)
class _Buffers:
    """The buffers of a module that is being exported, and what was asked of them alone."""

    held: Mapping[str, torch.Tensor]
    decides: bool = False  # whether what is asked is what they hold
    asked: set[Any] = field(default_factory=set)  # the symbols that stand for it
    _names: dict[int, str] = field(default_factory=dict)  # by the memory of what stands for a buffer
    _written: set[int] = field(default_factory=set)
    _decided: set[int] = field(default_factory=set)

    def stand_for(self, fakes: Mapping[str, torch.Tensor]) -> None:
        """What the trace has in their places."""
        self._names = {_memory(fakes[name]): name for name in self.held if name in fakes}

    def note_write(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Notes what an operator writes.

        :raises _WrittenError: it is a buffer that a test was decided by
        """
        arguments = func._schema.arguments
        given = (*zip(arguments, args, strict=False), *((a, kwargs[a.name]) for a in arguments if a.name in kwargs))
        for argument, value in given:
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for tensor in value if isinstance(value, list | tuple) else (value,):
                if isinstance(tensor, torch.Tensor):
                    self._written.add(_memory(tensor))
        if self._written & self._decided:
            raise _WrittenError

    def number_at(self, node: torch.fx.Node) -> Any:
        """What the one element of a value is.

        :raises _UnknownError: it is made of other things than buffers, or of one that was written
        """
        values: dict[torch.fx.Node, Any] = {}
        leaves: set[int] = set()
        value = self._value_of(node, values, leaves)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            raise _UnknownError
        if self.decides:
            self._decided |= leaves
            logger.info("a test is decided by what %s hold", ", ".join(sorted(self._names[at] for at in leaves)))
        return value.item()

    def _value_of(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any], leaves: set[int]) -> Any:
        """A tensor, or the list of them that an operator returns."""
        if node in values:
            return values[node]
        stands = pytree.tree_leaves(node.meta.get("val"))
        is_of_tensors = all(isinstance(tensor, torch.Tensor) for tensor in stands)
        if not stands or not is_of_tensors or len(values) > _STEPS or self._written & {*map(_memory, stands)}:
            raise _UnknownError
        if node.op == "placeholder":
            value = self._held_by(stands[0])
            leaves.add(_memory(stands[0]))
        else:
            args, kwargs = torch.fx.node.map_arg(
                (node.args, node.kwargs), lambda inner: self._value_of(inner, values, leaves)
            )
            value = _result_of(node.target, args, kwargs)
        if any(not isinstance(one, torch.Tensor) or one.numel() > _LONGEST for one in pytree.tree_leaves(value)):
            raise _UnknownError
        values[node] = value
        return value

    def _held_by(self, stands: torch.Tensor) -> torch.Tensor:
        name = self._names.get(_memory(stands))
        held = None if name is None else self.held[name]
        if held is None or held.shape != stands.shape or held.dtype != stands.dtype:
            raise _UnknownError
        return held


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _result_of(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if target is operator.getitem:
        return target(*args)
    is_operator = isinstance(target, torch._ops.OpOverload)
    if not is_operator or target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
        raise _UnknownError
    return target(*args, **kwargs)


_BUFFERS: ContextVar[_Buffers | None] = ContextVar("exportguard.buffers", default=None)


@contextmanager
def _looked_at(held: Mapping[str, torch.Tensor], *, decides: bool) -> Iterator[_Buffers]:
    buffers = _Buffers(held, decides)
    token = _BUFFERS.set(buffers)
    try:
        yield buffers
    finally:
        _BUFFERS.reset(token)


def _with_data(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that are small enough to be asked, and hold something."""
    return {
        name: buffer
        for name, buffer in module.named_buffers(remove_duplicate=False)
        if type(buffer) is torch.Tensor and not buffer.is_meta and buffer.numel() <= _LONGEST
    }


def deciding(original: Callable[..., Any]) -> Callable[..., Any]:
    """The export, made once more where it stopped at a number that buffers alone decide."""
    # Not at the top: symbolic shapes take long to import, and whoever exports has them by now.
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    @functools.wraps(original)
    def export(mod: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        held = _with_data(mod)
        if not held:
            return original(mod, *args, **kwargs)
        with state_before_export(mod) as snapshot:
            with _looked_at(held, decides=False) as buffers:
                try:
                    return original(mod, *args, **kwargs)
                except GuardOnDataDependentSymNode as error:
                    if not buffers.asked & error.cond.free_symbols:
                        raise
                    stopped = error
            snapshot.restore(snapshot.changes())
            # A block that repeats may have a buffer of its own, which decides otherwise.
            with _looked_at(held, decides=True), repeats_planned("trace all"):
                try:
                    return original(mod, *args, **kwargs)
                except _WrittenError:
                    raise stopped from None

    return export


def noting_fakes(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_fakify_params_buffers`, of which is known what stands for which buffer."""

    @functools.wraps(original)
    def fakify(fake_mode: Any, mod: torch.nn.Module) -> Any:
        fakes = original(fake_mode, mod)
        buffers = _BUFFERS.get()
        if buffers is not None:
            buffers.stand_for(fakes)
        return fakes

    return fakify


def asking_buffers(original: Callable[..., Any]) -> Callable[..., Any]:
    """`proxy_call`, where a number that buffers alone decide is noted, or given."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.fx.experimental.proxy_tensor import _ProxyTensor, get_proxy_slot

    def number(buffers: _Buffers, tracer: Any, tensor: Any) -> Any:
        slot = get_proxy_slot(tensor, tracer, None)
        if not isinstance(slot, _ProxyTensor):
            raise _UnknownError
        with unset_fake_temporarily():
            return buffers.number_at(slot.proxy.node)

    @functools.wraps(original)
    def proxy_call(
        proxy_mode: Any, func: Any, pre_dispatch: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        buffers = _BUFFERS.get()
        if buffers is None:
            return original(proxy_mode, func, pre_dispatch, args, kwargs)
        if func in _READS:
            try:
                known = number(buffers, proxy_mode.tracer, args[0])
            except _UnknownError:
                return original(proxy_mode, func, pre_dispatch, args, kwargs)
            if buffers.decides:
                return known
            result = original(proxy_mode, func, pre_dispatch, args, kwargs)
            buffers.asked |= getattr(getattr(result, "node", None), "expr", result).free_symbols
            return result
        if func._schema.is_mutable:
            buffers.note_write(func, args, kwargs)
        return original(proxy_mode, func, pre_dispatch, args, kwargs)

    return proxy_call


_KNOWN = (
    Expected(path="torch.export._trace._export_for_training", has=("_non_strict_export",)),
    Expected(path=_FAKES, parameters="fake_mode, mod"),
    Expected(path=_CALL, parameters="proxy_mode, func, pre_dispatch, args, kwargs"),
    Expected(
        path="torch.fx.experimental.proxy_tensor.ProxyTorchDispatchMode.__torch_dispatch__",
        has=("proxy_call(self, func, self.pre_dispatch, args, kwargs)",),
    ),
    Expected(path="torch.fx.experimental.proxy_tensor.get_proxy_slot", has=("tracer.tensor_tracker",)),
)

_REPLACEMENTS = {_EXPORT: deciding, _FAKES: noting_fakes, _CALL: asking_buffers}


PATCHES = (
    Patch(
        name="tests of buffers",
        kind="torch",
        target=tuple(_REPLACEMENTS),
        reason="what a buffer holds that no call writes is data to a trace, and the export stops at a test of it",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/proxy_tensor.py",
        is_in_traces=False,
        probe=expecting(*_KNOWN),
        replace=by_target(_REPLACEMENTS),
    ),
)
