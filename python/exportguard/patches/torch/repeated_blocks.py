"""Blocks that repeat are traced once: what `exportguard.repeats` needs of torch, and what it does where that fails."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from exportguard.declaration import NEEDED, Patch, Verdict, does_not_fit, resolve
from exportguard.patches.torch.module_state import state_before_export
from exportguard.repeats.plan import counted, current_plan, repeats_planned

if TYPE_CHECKING:
    pass

logger = logging.getLogger(__name__)

_TRACER = "torch.fx.experimental.proxy_tensor._ModuleStackTracer"
_MODE = "torch.fx.experimental.proxy_tensor.ProxyTorchDispatchMode"
_EXPORT = "torch.export._trace._export_for_training"


def _replacement(original: Callable[..., Any]) -> Callable[..., Any]:
    # Not at the top: the tracer takes long to import, and whoever exports has it by now.
    from exportguard.repeats import tracing

    replacements: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
        "trace": tracing.tracing_once,
        "call_module": tracing.calling_modules,
        "create_node": tracing.creating_nodes,
        "__torch_dispatch__": tracing.dispatching,
        "handle_sym_dispatch": tracing.dispatching_sizes,
        "_get_dispatch": tracing.finding_kernels,
    }
    return replacements[original.__name__](original)


#: The parameters of what is replaced, and what its source says, in torch 2.11 to 2.13.
_EXPECTED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    f"{_TRACER}.trace": (("self", "root", "concrete_args"), ("super().trace(root, concrete_args)",)),
    f"{_TRACER}.call_module": (("self", "m", "forward", "args", "kwargs"), ("forward(*args, **kwargs)",)),
    f"{_TRACER}.create_node": (("self", "args", "kwargs"), ("super().create_node(", "module_stack")),
    f"{_MODE}.__torch_dispatch__": (
        ("self", "func", "types", "args", "kwargs"),
        ("proxy_call(self, func, self.pre_dispatch, args, kwargs)",),
    ),
    "torch.fx.experimental.proxy_tensor.handle_sym_dispatch": (
        ("func", "args", "kwargs"),
        ("mode = get_proxy_mode()", "mode.__sym_dispatch__(func, types, args, kwargs)"),
    ),
    "torch._ops.OpOverload._get_dispatch": (
        ("self", "key"),
        (
            "functionality_key == DispatchKey.PreDispatch",
            "_dispatch_tls_is_dispatch_key_excluded(DispatchKey.Python)",
            "handle_dispatch_mode(curr_mode, self, *args, **kwargs)",
        ),
    ),
}

#: What replaying uses beside that: where torch keeps what it knows of a tensor, and how fake tensors are made.
_USED: Mapping[str, tuple[str, ...]] = {
    "torch.fx.experimental.proxy_tensor.get_proxy_slot": ("tracer.tensor_tracker", "sympy_expr_tracker"),
    "torch.fx.experimental.proxy_tensor.track_tensor": ("_ProxyTensor(proxy, constant)",),
    "torch._subclasses.fake_tensor.FakeTensor.__new__": ("_make_subclass", "device_for_backend_keys"),
    "torch.fx._symbolic_trace.Tracer.call_module": ("self.module_stack[",),
    "torch._ops._get_dispatch_mode_pre_dispatch": ("mode_stack_state_for_pre_dispatch().get(0)",),
}


def _probe() -> Verdict:
    for path, (parameters, texts) in _EXPECTED.items():
        function = inspect.unwrap(resolve(path).function)
        if tuple(inspect.signature(function).parameters) != parameters:
            return does_not_fit(f"{path} has other parameters than {', '.join(parameters)}")
        if missing := _missing(function, texts):
            return does_not_fit(f"{path} does not have {missing}")
    for path, texts in _USED.items():
        if missing := _missing(resolve(path).function, texts):
            return does_not_fit(f"{path} does not have {missing}")
    return NEEDED


def _missing(function: Any, texts: tuple[str, ...]) -> str:
    source = "".join(inspect.getsource(function).split())
    return next((text for text in texts if "".join(text.split()) not in source), "")


def _exporting(original: Callable[..., Any]) -> Callable[..., Any]:
    """An export that fails after something was replayed is tried again, with every call traced."""

    @functools.wraps(original)
    def export(mod: Any, *args: Any, **kwargs: Any) -> Any:
        if not current_plan().traces_once:
            return original(mod, *args, **kwargs)
        with state_before_export(mod) as snapshot, counted() as counts:
            try:
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


def _probe_export() -> Verdict:
    verdict = _probe()
    first = next(iter(inspect.signature(resolve(_EXPORT).function).parameters))
    is_called = "_export_for_training(" in inspect.getsource(
        inspect.unwrap(resolve("torch.export._trace._export").function)
    )
    if first != "mod" or not is_called:
        return does_not_fit(f"{_EXPORT} is not what exports a module")
    return verdict


def _is_on_constraints(error: Exception) -> bool:
    """Whether the model fixes an axis that was asked dynamic, which it does in every trace."""
    from torch._dynamo.exc import UserError, UserErrorType

    return isinstance(error, UserError) and error.error_type == UserErrorType.CONSTRAINT_VIOLATION


PATCHES = (
    Patch(
        name="repeated blocks",
        kind="torch",
        target=tuple(_EXPECTED),
        reason="torch.export traces every block of a model anew, though most make the same operator calls",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/proxy_tensor.py",
        versions="torch 2.11 to 2.13",
        is_in_traces=False,
        probe=_probe,
        replace=_replacement,
    ),
    Patch(
        name="exports that replaying stops",
        kind="torch",
        target=_EXPORT,
        reason="where a call cannot be traced once, the export is made with every call traced",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/export/_trace.py",
        is_in_traces=False,
        probe=_probe_export,
        replace=_exporting,
    ),
)
