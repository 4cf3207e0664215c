"""Calls of whole modules as one operator of a program, for translations of a module class."""

from __future__ import annotations

import contextvars
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree

from . import _core
from .declaration import Patch
from .errors import InvalidArgumentError

# The number says which call it is: what was no tensor in its arguments, and what has to be computed for an example.
_LIBRARY: Any = torch.library.Library("exportguard_modules", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define("call(Tensor[] tensors, SymInt[] sizes, int number) -> Tensor[]")

TARGET = "exportguard_modules.call.default"

_IN_BODIES = (
    "a module that is translated as a whole is called in a body of torch.cond or of a loop, or in a strict export, "
    "where it cannot be; translate its operators, or take the class out of the dispatcher"
)

_TENSOR = object()  # stands for a tensor in what a module returned

_calls: dict[int, ModuleCall] = {}
_numbers = itertools.count()
_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("inside", default=False)


@dataclass(frozen=True)
class _Place:
    """Where an argument that the operator has stands in its list."""

    is_size: bool
    index: int


@dataclass(frozen=True)
class ModuleCall:
    """One call of a module: its class, and its arguments without the tensors and symbolic sizes.

    The tensors of the operator are first those of the arguments, then the module's own, by name. `returned` is what it
    returned last, with marks in the place of the tensors.
    """

    reference: weakref.ref[torch.nn.Module]
    arguments: Sequence[Any]
    structure: pytree.TreeSpec
    own: Sequence[str]
    returned: list[Any] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many tensors it returned."""
        return sum(leaf is _TENSOR for leaf in pytree.tree_leaves(self.returned))

    @property
    def module(self) -> torch.nn.Module:
        """The module, which whoever converts the program must keep.

        Raises:
            InvalidArgumentError: it is gone.
        """
        module = self.reference()
        if module is None:
            raise InvalidArgumentError(
                "a module that is translated as a whole is gone; keep the model while its program is converted"
            )
        return module

    def given(self, tensors: Sequence[Any], sizes: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments by position and by keyword, with these in their places."""
        leaves = [
            (sizes if leaf.is_size else tensors)[leaf.index] if isinstance(leaf, _Place) else leaf
            for leaf in self.arguments
        ]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return args, kwargs

    def weights(self, tensors: Sequence[Any]) -> dict[str, Any]:
        """The module's own tensors, by name."""
        return dict(zip(self.own, tensors[len(tensors) - len(self.own) :], strict=True))

    def run(self, tensors: Sequence[Any], sizes: Sequence[Any]) -> list[torch.Tensor]:
        """What the module returns, each tensor in memory of its own, as an operator must."""
        args, kwargs = self.given(tensors, sizes)
        with _as_it_is(), _core.WriteWatch() as watch:
            returned = torch.func.functional_call(self.module, self.weights(tensors), tuple(args), kwargs)
        written = {tensor.untyped_storage()._cdata for tensor, *_ in watch.taken()}
        self._require_unwritten([tensor.untyped_storage()._cdata in written for tensor in tensors])
        self.returned[:] = [pytree.tree_map_only(torch.Tensor, lambda leaf: _TENSOR, returned)]
        return [leaf.clone() for leaf in pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]

    def _require_unwritten(self, written: Sequence[bool]) -> None:
        """The converter has no way to say what a buffer or an argument holds afterwards."""
        first = len(written) - len(self.own)
        names = [*(f"argument {i}" for i in range(first)), *self.own]
        changed = [name for name, is_written in zip(names, written, strict=True) if is_written]
        if changed:
            raise InvalidArgumentError(
                f"{type(self.module).__qualname__} writes into {', '.join(changed)}, so it cannot be translated as a "
                "whole; translate modules that write nothing, or operators"
            )


def call_of(number: int) -> ModuleCall:
    """The call that a node of a program stands for."""
    return _calls[number]


def patches_for(classes: Mapping[type[torch.nn.Module], Any]) -> list[Patch]:
    """Patches that make each call of a module of these classes, while a model is exported, one operator."""
    return [
        Patch(
            name=f"calls of {cls.__module__}.{cls.__qualname__} as one operator",
            kind="custom",
            target=f"{cls.__module__}.{cls.__qualname__}.forward",
            owner=cls,
            reason="the dispatcher translates the class as a whole",
            replace=_as_operator,
        )
        for cls in classes
    ]


def _as_operator(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        # Bodies of torch.cond and of loops, and strict exports, are traced by Dynamo, which reads no context variable.
        if torch.compiler.is_dynamo_compiling():
            raise InvalidArgumentError(_IN_BODIES)
        if _inside.get() or not torch.compiler.is_exporting():
            return original(self, *args, **kwargs)
        return _called(self, args, kwargs)

    return forward


def _called(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
    tensors: list[torch.Tensor] = []
    sizes: list[Any] = []
    arguments = [_placed(leaf, tensors, sizes) for leaf in leaves]
    own = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
    call = ModuleCall(weakref.ref(module), arguments, structure, tuple(own))
    number = next(_numbers)
    _calls[number] = call

    results = iter(torch.ops.exportguard_modules.call([*tensors, *own.values()], sizes, number))
    # The example of what it returns tells where the tensors stand.
    return pytree.tree_map(lambda leaf: next(results) if leaf is _TENSOR else leaf, call.returned[0])


def _placed(leaf: object, tensors: list[torch.Tensor], sizes: list[Any]) -> Any:
    if isinstance(leaf, torch.Tensor):
        tensors.append(leaf)
        return _Place(is_size=False, index=len(tensors) - 1)
    if isinstance(leaf, torch.SymInt):
        sizes.append(leaf)
        return _Place(is_size=True, index=len(sizes) - 1)
    if isinstance(leaf, torch.SymFloat | torch.SymBool):
        raise InvalidArgumentError(
            f"an argument of a module that is translated as a whole is a {type(leaf).__name__}; pass it as a tensor"
        )
    return leaf


@contextmanager
def _as_it_is() -> Iterator[None]:
    """Modules run their own code."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def _run(tensors: list[torch.Tensor], sizes: list[int], number: int) -> list[torch.Tensor]:
    return call_of(number).run(tensors, sizes)


_LIBRARY.impl("call", _run, "CompositeExplicitAutograd")
torch.library.register_fake("exportguard_modules::call", _run, lib=_LIBRARY)
