"""Blocks that repeat are traced once: what `exportguard.repeats` needs of torch, and what it does where that fails."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from exportguard.declaration import Patch
from exportguard.declaration.expected import Expected, Expecting
from exportguard.interrupted import interrupts_come_out
from exportguard.patches.torch.module_state import state_before_export
from exportguard.repeats.plan import counted, current_plan, repeats_planned

logger = logging.getLogger(__name__)

_TRACER = "torch.fx.experimental.proxy_tensor._ModuleStackTracer"
_MODE = "torch.fx.experimental.proxy_tensor.ProxyTorchDispatchMode"
#: What exports a module: a guard without an export does not import what its traces need.
EXPORTER = "torch.export._trace"
_EXPORT = f"{EXPORTER}._export_for_training"


def _replacement(original: Callable[..., Any]) -> Callable[..., Any]:
    # Not at the top: they take long to import, and only a trace of torch.export's uses them.
    from exportguard.repeats import tracing

    replacements: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
        "trace": tracing.tracing_once,
        "call_module": tracing.calling_modules,
        "create_node": tracing.creating_nodes,
        "__torch_dispatch__": tracing.dispatching,
        "__torch_function__": tracing.watching_functions,
        "handle_sym_dispatch": tracing.dispatching_sizes,
        "_get_dispatch": tracing.finding_kernels,
        "_dispatch_impl": tracing.asking_kernels,
    }
    return replacements[original.__name__](original)


_PROXIES = "torch.fx.experimental.proxy_tensor"

#: What is replaced, in torch 2.11 to 2.13.
_REPLACED = (
    Expected(
        path=f"{_TRACER}.trace",
        parameters="self, root, concrete_args",
        has=("super().trace(root, concrete_args)",),
    ),
    Expected(
        path=f"{_TRACER}.call_module",
        parameters="self, m, forward, args, kwargs",
        has=("forward(*args, **kwargs)",),
    ),
    Expected(
        path=f"{_TRACER}.create_node",
        parameters="self, args, kwargs",
        has=("super().create_node(...)", "self.module_stack"),
    ),
    Expected(
        path=f"{_MODE}.__torch_dispatch__",
        parameters="self, func, types, args, kwargs",
        has=("proxy_call(self, func, self.pre_dispatch, args, kwargs)",),
    ),
    Expected(
        path=f"{_PROXIES}.PreDispatchTorchFunctionMode.__torch_function__",
        parameters="self, func, types, args, kwargs",
        has=("self.tracer.create_node(...)", "func(*args, **kwargs)"),
    ),
    Expected(
        path=f"{_PROXIES}.handle_sym_dispatch",
        parameters="func, args, kwargs",
        has=("mode = get_proxy_mode()", "mode.__sym_dispatch__(func, types, args, kwargs)"),
    ),
    Expected(
        path="torch._ops.OpOverload._get_dispatch",
        parameters="self, key",
        has=(
            "functionality_key == DispatchKey.PreDispatch",
            "$c._dispatch_tls_is_dispatch_key_excluded(DispatchKey.Python)",
            "$utils.handle_dispatch_mode(curr_mode, self, *args, **kwargs)",
        ),
    ),
    Expected(
        path="torch._subclasses.fake_tensor.FakeTensorMode._dispatch_impl",
        parameters="self, func, types, args, kwargs",
        has=("self.propagate_real_tensors",),
    ),
)

#: How fake tensors are made.
MADE_AS_SUBCLASS = Expected(
    path="torch._subclasses.fake_tensor.FakeTensor.__new__",
    has=("$tensor._make_subclass(..., device_for_backend_keys=$device)",),
)

#: What replaying uses beside that: where torch keeps what it knows of a tensor.
_USED = (
    Expected(path=f"{_PROXIES}.get_proxy_slot", has=("tracer.tensor_tracker", "tracer.sympy_expr_tracker")),
    Expected(path=f"{_PROXIES}.track_tensor", has=("_ProxyTensor(proxy, constant)",)),
    MADE_AS_SUBCLASS,
    Expected(path="torch.fx._symbolic_trace.Tracer.call_module", has=("self.module_stack[$key]",)),
    Expected(
        path="torch._ops._get_dispatch_mode_pre_dispatch",
        has=("mode_stack_state_for_pre_dispatch().get(0)",),
    ),
)

_EXPORTED = (
    Expected(path=_EXPORT, parameters="mod, ..."),
    Expected(path=f"{EXPORTER}._export", has=("_export_for_training(...)",)),
)


def _exporting(original: Callable[..., Any]) -> Callable[..., Any]:
    """An export that fails after something was replayed is tried again, with every call traced."""

    @functools.wraps(original)
    def export(mod: Any, *args: Any, **kwargs: Any) -> Any:
        if not current_plan().traces_once:
            return original(mod, *args, **kwargs)
        with state_before_export(mod) as snapshot, counted() as counts:
            try:
                with interrupts_come_out():
                    return original(mod, *args, **kwargs)
            except Exception as error:
                if not any(count.replayed for count in counts) or _is_on_constraints(error):
                    raise
                failed = error
            snapshot.restore(snapshot.changes())
        with repeats_planned("trace all"):
            program = original(mod, *args, **kwargs)
        logger.warning(
            "an operator call could not be traced once, so all were traced, which takes longer: %s: %s",
            type(failed).__name__,
            next(iter(str(failed).splitlines()), ""),
        )
        return program

    return export


def _is_on_constraints(error: Exception) -> bool:
    """Whether the model fixes an axis that was asked dynamic, which it does in every trace."""
    from torch._dynamo.exc import UserError, UserErrorType

    return isinstance(error, UserError) and error.error_type == UserErrorType.CONSTRAINT_VIOLATION


PATCHES = (
    Patch(
        name="repeated blocks",
        kind="torch",
        target=tuple(expected.path for expected in _REPLACED),
        awaits=EXPORTER,
        reason="torch.export traces every block of a model anew, though most make the same operator calls",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/proxy_tensor.py",
        versions="torch 2.11 to 2.13",
        is_in_traces=False,
        probe=Expecting((*_REPLACED, *_USED)),
        replace=_replacement,
    ),
    Patch(
        name="exports that replaying stops",
        kind="torch",
        target=_EXPORT,
        reason="where a call cannot be traced once, the export is made with every call traced",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/export/_trace.py",
        is_in_traces=False,
        probe=Expecting((*_REPLACED, *_USED, *_EXPORTED)),
        replace=_exporting,
    ),
)
