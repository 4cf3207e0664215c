"""Gradients within `forward`: `torch.autograd.grad`, `torch.func.grad`, `grad_and_value` and `vjp`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from exportguard.declaration.patch import NEEDED, Patch, Replacement, Verdict, not_needed, replaced

if TYPE_CHECKING:
    from exportguard._core import Changes

_AUTOGRAD = "torch.autograd.grad"
_VALUE = "torch._functorch.eager_transforms.grad_and_value_impl"
_BLOCK = "torch.autograd.grad_mode.enable_grad"
_PRODUCT = "torch._functorch.eager_transforms._vjp_with_argnums"
_FORWARD = "torch._functorch.eager_transforms._jvp_with_argnums"

# torch 2.11 to 2.13 keep what a tracer knows of tensors by the object. What autograd saves for the way back comes out
# as another object over the same memory, which the tracer takes for a constant.
_PROXY = torch._C._TorchDispatchModeKey.PROXY


def _place(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """Where the elements lie; None within vmap. Sizes as text: symbolic ones that are compared become guards."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return None
    sizes = [str(size) for size in (*tensor.shape, *tensor.stride(), tensor.storage_offset())]
    return (tensor.untyped_storage()._cdata, tensor.dtype, *sizes)


class _ByMemory(MutableMapping[torch.Tensor, Any]):
    """What a tracer knows of tensors, of those over the same memory as well."""

    def __init__(self, known: MutableMapping[torch.Tensor, Any]) -> None:
        self.known = known
        # Holds the tensors, so that no memory is handed out again.
        self._by_place: dict[tuple[Any, ...], torch.Tensor] = {}
        for tensor in known:
            self._keep(tensor)

    def _keep(self, tensor: torch.Tensor) -> None:
        place = _place(tensor)
        if place is not None:
            self._by_place.setdefault(place, tensor)

    def _same(self, key: torch.Tensor) -> torch.Tensor:
        place = None if key in self.known else _place(key)
        return key if place is None else self._by_place.get(place, key)

    def get(self, key: torch.Tensor, default: Any = None) -> Any:
        return self.known.get(self._same(key), default)

    def __getitem__(self, key: torch.Tensor) -> Any:
        return self.known[self._same(key)]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, torch.Tensor) and self._same(key) in self.known

    def __setitem__(self, key: torch.Tensor, value: Any) -> None:
        self.known[key] = value
        self._keep(key)

    def __delitem__(self, key: torch.Tensor) -> None:
        del self.known[key]

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)


def _mode() -> Any:
    """The mode that traces here; None where nothing does."""
    ops: Any = torch._ops
    return ops._get_dispatch_mode_pre_dispatch(_PROXY) or torch._C._get_dispatch_mode(_PROXY)


def _tracer() -> Any:
    """What traces here; None where nothing does, and within vmap, whose tensors have memory of their own."""
    mode = _mode()
    is_batched = torch._C._functorch.maybe_current_level() is not None
    return None if mode is None or is_batched else mode.tracer


def _know_by_memory(tracer: Any) -> None:
    """From here on until the trace ends: gradients may be asked for behind the block that wanted them."""
    if not isinstance(tracer.tensor_tracker, _ByMemory):
        tracer.tensor_tracker = _ByMemory(tracer.tensor_tracker)


@contextlib.contextmanager
def _taken_apart() -> Iterator[None]:
    """Operators that torch makes of others are traced as those: what is saved for the way back is one of their results.
    Attention is, too, as its kernels have a way back of their own."""
    mode = _mode()
    if mode is None or not mode.pre_dispatch:
        yield
        return
    _know_by_memory(mode.tracer)
    mode.pre_dispatch = False
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        mode.pre_dispatch = True


def entered(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """`torch.enable_grad`, which a program that is traced without gradients has where it wants some."""

    @functools.wraps(original)
    def enter(self: Any) -> None:
        original(self)
        self.taken_apart = _taken_apart()
        self.taken_apart.__enter__()

    return enter


def left(original: Callable[..., None]) -> Callable[..., None]:
    """The end of the same block."""

    @functools.wraps(original)
    def leave(self: Any, *raised: Any) -> None:
        opened = vars(self).pop("taken_apart", None)  # none if the block began before the guard
        if opened is not None:
            opened.__exit__(*raised)
        original(self, *raised)

    return leave


def traced_grad(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.autograd.grad`, whose operators are traced with the tensors that were saved for them."""

    @functools.wraps(original)
    def grad(*args: Any, **kwargs: Any) -> Any:
        if (tracer := _tracer()) is not None:
            _know_by_memory(tracer)
        return original(*args, **kwargs)

    return grad


def _leaf(value: Any) -> Any:
    """What is differentiated by. What a gradient around this one needs stays in its graph."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.view_as(value) if value.requires_grad else value.detach().requires_grad_()


def _is_variable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _without_graph(values: Any, *, if_outermost: bool) -> Any:
    """The numbers alone, for whoever differentiates no further."""
    return pytree.tree_map(lambda x: x.detach() if if_outermost and _is_variable(x) else x, values)


def _gradients(outputs: list[Any], variables: list[Any], seeds: list[Any] | None) -> list[Any]:
    with_graph = [place for place, output in enumerate(outputs) if _is_variable(output)]
    wanted = [place for place, variable in enumerate(variables) if _is_variable(variable)]
    found: list[Any] = [torch.zeros_like(variable) for variable in variables]
    if with_graph and wanted:
        gradients = torch.autograd.grad(
            [outputs[place] for place in with_graph],
            [variables[place] for place in wanted],
            None if seeds is None else [seeds[place] for place in with_graph],
            create_graph=True,
            allow_unused=True,
        )
        for place, gradient in zip(wanted, gradients, strict=True):
            found[place] = found[place] if gradient is None else gradient
    return found


def by_autograd(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.func.grad_and_value`, from which torch takes `grad`: by autograd where a program is traced."""

    @functools.wraps(original)
    def grad_and_value_impl(func: Any, argnums: Any, has_aux: bool, args: Any, kwargs: Any) -> Any:
        if _mode() is not None and _tracer() is None:
            raise ValueError(
                "a gradient within torch.vmap is not traced; if no row of the batch meets another one, the gradient of "
                "the sum over the batch has the same rows: torch.func.grad(lambda batch: torch.vmap(f)(batch).sum())"
            )
        if _tracer() is None:
            return original(func, argnums, has_aux, args, kwargs)
        places = [place % len(args) for place in (argnums if isinstance(argnums, tuple) else (argnums,))]
        is_outermost = not any(map(_is_variable, pytree.tree_leaves([args[place] for place in places])))
        with torch.enable_grad():
            given = [pytree.tree_map(_leaf, arg) if place in places else arg for place, arg in enumerate(args)]
            output, aux = func(*given, **kwargs) if has_aux else (func(*given, **kwargs), None)
            if not isinstance(output, torch.Tensor) or output.dim() != 0:
                return original(func, argnums, has_aux, args, kwargs)  # which says what is wrong
            chosen = tuple(given[place] for place in places) if isinstance(argnums, tuple) else given[places[0]]
            leaves, spec = pytree.tree_flatten(chosen)
            gradients = pytree.tree_unflatten(_gradients([output], leaves, None), spec)
        told = (output, aux) if has_aux else output
        return _without_graph(gradients, if_outermost=is_outermost), _without_graph(told, if_outermost=is_outermost)

    return grad_and_value_impl


def product_by_autograd(original: Callable[..., Any]) -> Callable[..., Any]:
    """What `torch.func.vjp` calls in the same way; `jacrev`, which says for which arguments, needs it within vmap."""

    @functools.wraps(original)
    def vjp(func: Any, *primals: Any, argnums: Any = None, has_aux: bool = False) -> Any:
        if _mode() is not None and argnums is not None:
            raise ValueError(
                "torch.func.jacrev is not traced: it calls torch.vmap around a gradient; write "
                "torch.autograd.functional.jacobian(f, x) instead"
            )
        if _tracer() is None:
            return original(func, *primals, argnums=argnums, has_aux=has_aux)
        is_outermost = not any(map(_is_variable, pytree.tree_leaves(primals)))
        with torch.enable_grad():
            given = pytree.tree_map(_leaf, primals)
            outputs, *aux = func(*given) if has_aux else (func(*given),)
        leaves, spec = pytree.tree_flatten(given)

        def product(*cotangents: Any, **_: Any) -> Any:
            seeds = pytree.tree_leaves(cotangents[0] if len(cotangents) == 1 else cotangents)
            with torch.enable_grad():
                gradients = _gradients(pytree.tree_leaves(outputs), leaves, seeds)
            return _without_graph(pytree.tree_unflatten(gradients, spec), if_outermost=is_outermost)

        told = [_without_graph(each, if_outermost=is_outermost) for each in (outputs, *aux)]
        return (told[0], product, *told[1:])

    return vjp


def refused_forward_mode(original: Callable[..., Any]) -> Callable[..., Any]:
    """What `torch.func.jvp`, `jacfwd` and `hessian` call: dual numbers, which no trace takes."""

    @functools.wraps(original)
    def jvp(*args: Any, **kwargs: Any) -> Any:
        if _mode() is not None:
            raise ValueError(
                "derivatives in forward mode (torch.func.jvp, jacfwd, hessian) are not traced; write "
                "torch.autograd.functional.jacobian(f, x) instead, or hessian(f, x) of the same module"
            )
        return original(*args, **kwargs)

    return jvp


def _apply(changes: Changes) -> list[Replacement]:
    return [
        replaced(changes, _AUTOGRAD, traced_grad),
        replaced(changes, _VALUE, by_autograd),
        replaced(changes, _PRODUCT, product_by_autograd),
        replaced(changes, _FORWARD, refused_forward_mode),
        replaced(changes, f"{_BLOCK}.__enter__", entered),
        replaced(changes, f"{_BLOCK}.__exit__", left),
    ]


def _probe() -> Verdict:
    return NEEDED if torch.__version__ < "2.14" else not_needed("written for torch 2.11 to 2.13")


PATCHES = (
    Patch(
        name="gradients in forward",
        kind="torch",
        target=(_AUTOGRAD, _VALUE, _PRODUCT, _FORWARD, f"{_BLOCK}.__enter__", f"{_BLOCK}.__exit__"),
        reason="what autograd saves is taken for a constant, and the export stops",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/proxy_tensor.py",
        probe=_probe,
        apply=_apply,
    ),
)
