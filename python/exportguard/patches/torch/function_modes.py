"""Functions of torch that a model calls while it is traced, without the detours that mean nothing for most of them.

Three modes of torch.export look at each function that a model calls, sizes and flags of tensors among them; two of them
look for a few functions, each by asking torch's dispatcher for the next mode. What is compiled and none of these goes
straight from the first mode to the function.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from exportguard.declaration import NEEDED, Patch, Verdict, does_not_fit, resolve, resolve_object
from exportguard.declaration.expected import Expected, Expecting, expecting
from exportguard.repeats.questions import WATCHED

_PROXIES = "torch.fx.experimental.proxy_tensor"
_FIRST = f"{_PROXIES}.TorchFunctionMetadataMode.__torch_function__"
_SECOND = f"{_PROXIES}.PreDispatchTorchFunctionMode.__torch_function__"
_EXPORTER = "torch._export.non_strict_utils"
_THIRD = f"{_EXPORTER}._NonStrictTorchFunctionHandler.__torch_function__"
_TRACK = f"{_PROXIES}.track_tensor_tree"

_COMPILED = frozenset(
    {
        types.BuiltinFunctionType,
        types.MethodDescriptorType,
        types.MethodWrapperType,
        types.WrapperDescriptorType,
    }
)

#: What the second and the third mode do something for and is compiled; indexing is known by its name.
_LOOKED_FOR = WATCHED | {torch._C._set_grad_enabled, torch.tensor}
_INDEXING = frozenset({"__getitem__", "__setitem__"})
_WITHOUT_FUNCTIONS = torch._C._disabled_torch_function_impl
_CONSTANTS = frozenset({int, type(None), types.EllipsisType})

#: `x.data`, which no operator is called for in torch 2.11 to 2.13: what it gives has no place in a graph.
_DATA = vars(torch._C.TensorBase)["data"].__get__


def straight(original: Callable[..., Any]) -> Callable[..., Any]:
    """The first of the three modes; all are asked for a tensor with functions of its own, or where modes are others."""
    third, second = (resolve(path).owner for path in (_THIRD, _SECOND))
    modes = torch._C
    errors = resolve_object("torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode")
    explain = resolve_object(f"{_EXPORTER}._suggest_fixes_for_data_dependent_error_non_strict")

    @functools.wraps(original)
    def torch_function(mode: Any, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        # It is called for each function, and so asks all that it can of what it has at hand.
        if type(func) is types.MethodWrapperType and func == _DATA:
            func, args = torch.Tensor.detach, args[:1]  # shares the memory as well; `__get__` is given the class too
        is_straight = (
            type(func) in _COMPILED
            and func not in _LOOKED_FOR
            and (func.__name__ not in _INDEXING or _is_simple_indexing(args))
            and modes._len_torch_function_stack() == 2
            and type(modes._get_function_stack_at(0)) is third
            and type(modes._get_function_stack_at(1)) is second
            and _have_no_functions(kinds)
        )
        if not is_straight:
            return original(mode, func, kinds, args, kwargs)
        tracer = mode.tracer
        tracer.torch_fn_metadata = func
        tracer.torch_fn_counts[func] = tracer.torch_fn_counts.get(func, 0) + 1
        try:
            with torch._C.DisableTorchFunction():
                return func(*args, **(kwargs or {}))
        except errors as error:
            explain(error)
            raise

    return torch_function


def _have_no_functions(kinds: Any) -> bool:
    """Whether no class of tensors among these has functions of its own, as fake tensors have none."""
    return all([kind.__torch_function__ is _WITHOUT_FUNCTIONS for kind in kinds])  # noqa: C419 - sooner than a generator


def _is_simple_indexing(args: Sequence[Any]) -> bool:
    """Whether the index is made of numbers alone, and no tensor is written, whose axes may be of one entry."""
    return _is_constant_index(args[1]) and not (len(args) > 2 and isinstance(args[2], torch.Tensor))


def _is_constant_index(index: object) -> bool:
    """Whether an index is made of numbers alone; the third mode does something for sizes and tensors in it."""
    return all(
        type(part) in _CONSTANTS or (type(part) is slice and _ends_of(part) <= _CONSTANTS)
        for part in (index if type(index) is tuple else (index,))
    )


def _ends_of(part: slice) -> set[type]:
    return {type(part.start), type(part.stop), type(part.step)}


def tracking_quietly(original: Callable[..., Any]) -> Callable[..., Any]:
    """What torch notes of a value that it traced: its questions are none of the model's."""

    @functools.wraps(original)
    def track(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return original(*args, **kwargs)

    return track


_PARAMETERS = "self, func, types, args, kwargs"

#: The modes, and what they do with a function, in torch 2.11 to 2.13.
_MODES = (
    Expected(
        path=_FIRST,
        parameters=_PARAMETERS,
        has=("self.tracer.torch_fn_metadata = func", "self.tracer.torch_fn_counts[func] = $count"),
    ),
    Expected(
        path=_SECOND,
        parameters=_PARAMETERS,
        has=("func in _side_effectful_need_to_be_preserved_pre_dispatch",),
    ),
    Expected(
        path=_THIRD,
        parameters=_PARAMETERS,
        has=("self._override(func, args, kwargs)", "GuardOnDataDependentSymNode"),
    ),
)


def _probe_preserved() -> Verdict:
    """Whether the one function of those that stay in the graph that is compiled is the change of grad mode."""
    preserved = resolve_object("torch.fx.node._side_effectful_need_to_be_preserved_pre_dispatch")
    others = [function for function in preserved if type(function) in _COMPILED and function not in _LOOKED_FOR]
    return does_not_fit(f"{others[0]} stays in graphs too") if others else NEEDED


PATCHES = (
    Patch(
        name="functions that no mode looks for",
        kind="torch",
        target=_FIRST,
        awaits=_EXPORTER,
        reason="three modes are asked for each function that a model calls, two of which look for a few functions",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/proxy_tensor.py",
        versions="torch 2.11 to 2.13",
        is_in_traces=False,
        probe=Expecting(_MODES, then=_probe_preserved),
        replace=straight,
    ),
    Patch(
        name="questions of torch's tracer",
        kind="torch",
        target=_TRACK,
        reason="what the tracer itself asks of each tensor goes through the modes that watch the model",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/proxy_tensor.py",
        versions="torch 2.11 to 2.13",
        is_in_traces=False,
        probe=expecting(Expected(path=_TRACK, parameters="inner_res, proxy_res, constant, tracer")),
        replace=tracking_quietly,
    ),
)
