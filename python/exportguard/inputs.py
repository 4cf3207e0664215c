"""The inputs of one call of a model, as a flat list of named leaves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

from .arguments import require_named
from .cache_names import by_its_names
from .errors import InvalidArgumentError


@dataclass(frozen=True)
class Leaf:
    """One tensor, number, string or None of a call; `name` is its path, such as `past_key_values.0.key`."""

    name: str
    value: Any

    @property
    def rank(self) -> int:
        """The number of axes; 0 for what is no tensor."""
        return self.value.dim() if isinstance(self.value, torch.Tensor) else 0


_ANYTHING = inspect.signature(lambda *args, **kwargs: None)


@dataclass(frozen=True)
class CallInputs:
    """The arguments of one call of a model: those by position, those by name, and the signature that they fit."""

    args: tuple[Any, ...] = field(default_factory=tuple)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    signature: inspect.Signature = _ANYTHING

    def __getattr__(self, name: str) -> Any:
        """The arguments of a call that was made of leaves, which are put together when they are first asked for."""
        if name not in ("args", "kwargs") or "_flat" not in self.__dict__:
            raise AttributeError(name)
        self.__dict__["args"], self.__dict__["kwargs"] = pytree.tree_unflatten(*self._flat)
        return self.__dict__[name]

    @classmethod
    def of(cls, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> CallInputs:
        """A call of the forward of a module, or of what is called in its place.

        Named arguments are in the order of the signature, the order torch.export flattens in.

        Raises:
            InvalidArgumentError: `args` is no tuple or list, or an argument does not fit the signature; a cache may be
                called as another release of transformers calls it (see `by_its_names`).
        """
        if not isinstance(args, (tuple, list)):
            remedy = "pass kwargs={…} for those by name" if isinstance(args, Mapping) else "pass (x,) for one"
            raise InvalidArgumentError(f"args must be a tuple of arguments, got {type(args).__name__}; {remedy}")
        if kwargs is not None:
            require_named("kwargs", kwargs)
        signature = inspect.signature(function)
        call = cls(_as_torch(tuple(args)), _as_torch(by_its_names(kwargs or {}, signature.parameters)), signature)
        try:
            signature.bind(*call.args, **call.kwargs)
        except TypeError as error:
            raise InvalidArgumentError(f"the inputs do not fit {_name_of(function)}{signature}: {error}") from error

        order = list(signature.parameters)
        names = sorted(call.kwargs, key=lambda name: order.index(name) if name in order else len(order))
        return replace(call, kwargs={name: call.kwargs[name] for name in names})

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by parameter name, in the order of the signature."""
        return dict(self.signature.bind(*self.args, **self.kwargs).arguments)

    @property
    def further(self) -> str | None:
        """The parameter that takes any named argument, `kwargs` in most functions that have one."""
        kinds = {name: parameter.kind for name, parameter in self.signature.parameters.items()}
        return next((name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD), None)

    def leaves(self) -> list[Any]:
        """The tensors, numbers, strings and None, in the order in which torch.export flattens them."""
        return list(self._flat[0])

    @functools.cached_property
    def _flat(self) -> tuple[list[Any], pytree.TreeSpec]:
        """The leaves and their containers; a cache of many layers is not taken apart each time that it is asked for."""
        return pytree.tree_flatten((self.args, dict(self.kwargs)))

    def with_leaves(self, leaves: Sequence[Any]) -> CallInputs:
        """The same containers around other leaves."""
        if len(leaves) != self._flat[1].num_leaves:
            raise ValueError(f"{self._flat[1].num_leaves} leaves are needed, got {len(leaves)}")

        # They are flat already; as a cached property is kept in the dictionary, it is known and not found out again.
        call = CallInputs.__new__(CallInputs)
        call.__dict__.update(signature=self.signature, _flat=([*leaves], self._flat[1]))
        return call

    def copied(self) -> CallInputs:
        """The same with copies of the tensors, in containers of its own."""
        return self.with_leaves([leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in self._flat[0]])

    def apart_from(self, tensors: Iterable[torch.Tensor]) -> CallInputs:
        """The same call, in which no tensor is there twice or is one of `tensors`, the weights of the model."""
        leaves = apart(self._flat[0], tensors)
        return self if leaves is None else self.with_leaves(leaves)

    def mapped(self, change: Callable[[Any], Any]) -> CallInputs:
        """The call with other arguments: `change` takes a container of them, and returns one like it."""
        return CallInputs(change(self.args), change(dict(self.kwargs)), self.signature)


def apart(leaves: Sequence[Any], others: Iterable[torch.Tensor] = ()) -> list[Any] | None:
    """The leaves with a copy for each tensor that was there before, or lies in the memory of one of `others`; None if
    there is none.

    To torch's tracer one tensor is one value, whatever stands for it (torch 2.11 to 2.13 keep fake tensors by the
    tensor that they are of), so that of two inputs the first would not be read at all: a program has two.

    >>> x = torch.zeros(2)
    >>> [leaf is x for leaf in apart([x, 1, x]) or ()]
    [True, False, False]
    """
    memories = {_memory(other) for other in others} - {None}
    met: set[int] = set()
    found: list[Any] = []
    for leaf in leaves:
        is_known = isinstance(leaf, torch.Tensor) and (id(leaf) in met or _memory(leaf) in memories)
        met.add(id(leaf))
        found.append(leaf.detach().clone().requires_grad_(leaf.requires_grad) if is_known else leaf)
    return found if any(one is not leaf for one, leaf in zip(found, leaves, strict=True)) else None


def _memory(tensor: torch.Tensor) -> int | None:
    """What tells the memory of a tensor; None of one that has none of its own, as those that are made of others."""
    is_plain = tensor.layout is torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)
    if is_plain and torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # torch 2.11 to 2.13
        return None
    return tensor.untyped_storage()._cdata if is_plain else None


def _as_torch(inputs: object) -> Any:
    """The same inputs with tensors for arrays of numpy and numbers for its numbers."""
    if not any(isinstance(leaf, numpy.ndarray | numpy.generic) for leaf in pytree.tree_leaves(inputs)):
        return inputs
    return pytree.tree_map(_from_numpy, inputs)


def _from_numpy(leaf: object) -> Any:
    if isinstance(leaf, numpy.generic):
        return leaf.item()
    # Torch wants memory that can be written, and strides that do not go backwards.
    return torch.from_numpy(numpy.array(leaf)) if isinstance(leaf, numpy.ndarray) else leaf


def flatten_named(tree: object) -> list[Leaf]:
    """Every leaf of a tree of containers with its path; classes registered with pytree are opened too.

    >>> [leaf.name for leaf in flatten_named({"x": 1, "pair": (2, 3)})]
    ['x', 'pair.0', 'pair.1']
    """
    return [Leaf(".".join(_step(key) for key in path), value) for path, value in _leaves_with_path(tree)]


def _leaves_with_path(tree: object) -> Iterator[tuple[tuple[object, ...], Any]]:
    """As `pytree.tree_flatten_with_path`, also where a class is registered without its keys."""
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(tree))
    if node is None:
        yield (), tree
        return
    pairs, _ = (node.flatten_with_keys_fn or functools.partial(flattened_with_keys, node.flatten_fn))(tree)
    for key, value in pairs:
        yield from (((key, *path), leaf) for path, leaf in _leaves_with_path(value))


def flattened_with_keys(flatten: Callable[[Any], tuple[Iterable[Any], Any]], container: object) -> tuple[Any, Any]:
    """What the function of a class that is registered with pytree gives, each value with its key.

    The keys are the context, where that is a list of as many names; else each is the number of the value.
    """
    found, context = flatten(container)
    values = list(found)
    is_named = isinstance(context, list | tuple) and len(context) == len(values)
    if is_named and all(isinstance(name, str) for name in context):
        return [(pytree.MappingKey(name), value) for name, value in zip(context, values, strict=True)], context
    return [(pytree.SequenceKey(number), value) for number, value in enumerate(values)], context


def _step(key: object) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
