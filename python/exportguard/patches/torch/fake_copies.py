"""Fake tensors of parameters, buffers and inputs: found out about once where they look alike, with their attributes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from exportguard.declaration import Patch
from exportguard.declaration.expected import Expected, Expecting
from exportguard.patches.torch.named_axes import add_source
from exportguard.patches.torch.repeated_blocks import EXPORTER, MADE_AS_SUBCLASS
from exportguard.repeats.plan import current_plan

_TARGET = "torch._subclasses.fake_tensor.FakeTensorConverter.from_real_tensor"


def with_attributes(fake: Any, tensor: Any) -> Any:
    """A fake tensor with what Python was told of the tensor that it stands for, as in `weight.scale = 2.0`.

    Torch forgets it, and `getattr(weight, "scale", 1.0)` has another answer while a model is traced.
    """
    own = getattr(fake, "__dict__", None)
    if own is not None and fake is not tensor:
        for name, value in getattr(tensor, "__dict__", {}).items():
            own.setdefault(name, value)
    return fake


def copying(original: Callable[..., Any]) -> Callable[..., Any]:
    """`FakeTensorConverter.from_real_tensor`, where one of the same look and symbols is copied."""
    # Not at the top: they take long to import, and whoever exports has them by now.
    from torch._dynamo.source import TensorProperty, TensorPropertySource
    from torch.fx.experimental.symbolic_shapes import StatelessSymbolicContext

    from exportguard.repeats.copies import Copies, look_of, symbols_of_axes

    def axes_of(context: Any, source: Any, env: Any) -> Mapping[int, Any] | None:
        if context is None:
            return {} if source is None and env is None else None
        is_simple = type(context) is StatelessSymbolicContext and context.view_base_context is None
        return symbols_of_axes(context) if is_simple and env is not None else None

    @functools.wraps(original)
    def from_real_tensor(
        self: Any,
        fake_mode: Any,
        t: Any,
        make_constant: bool = False,
        shape_env: Any = None,
        *,
        source: Any = None,
        symbolic_context: Any = None,
        trace: bool = True,
    ) -> Any:
        def made_by_torch() -> Any:
            fake = original(
                self,
                fake_mode,
                t,
                make_constant,
                shape_env,
                source=source,
                symbolic_context=symbolic_context,
                trace=trace,
            )
            return with_attributes(fake, t) if self.export else fake

        may_copy = self.export and not make_constant and current_plan().traces_once
        look = look_of(t) if may_copy and self._get_memo(t) is None else None
        if look is None:
            return made_by_torch()
        axes = axes_of(symbolic_context, source, shape_env)
        fake = None if axes is None else Copies.of(self).fake_of(t, (look, *axes.items()))
        if fake is None:
            fake = made_by_torch()
            axes = axes_of(symbolic_context, source, shape_env)
            if axes is not None:
                Copies.of(self).note((look, *axes.items()), fake)
            return fake
        for axis, symbol in (axes or {}).items():
            add_source(shape_env, symbol, TensorPropertySource(source, TensorProperty.SIZE, axis))
        return with_attributes(fake, t)

    return from_real_tensor


_CONVERTER = "torch._subclasses.fake_tensor.FakeTensorConverter"
_META = "torch._subclasses.meta_utils"

#: The target, and what is used beside it, in torch 2.11 to 2.13.
_KNOWN = (
    Expected(
        path=_TARGET,
        parameters="self, fake_mode, t, make_constant, shape_env, source, symbolic_context, trace",
    ),
    Expected(path=f"{_CONVERTER}._get_memo", has=("self.meta_converter.describer.lookup_tensor.get(t)",)),
    Expected(path=f"{_CONVERTER}.set_tensor_memo", has=("self.meta_converter.tensor_memo[$id] = v",)),
    Expected(path=f"{_META}.MetaConverter.set_storage_memo", has=("self.storage_memo[s.id] = v",)),
    Expected(path=f"{_META}.MetaTensorDescriber.get_storage_id", has=("self.lookup_storage[s]",)),
    MADE_AS_SUBCLASS,
)


PATCHES = (
    Patch(
        name="fake tensors that look alike",
        kind="torch",
        target=_TARGET,
        awaits=EXPORTER,
        reason="how a tensor lies in memory is found out for each parameter and each layer of a cache on its own",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_subclasses/fake_tensor.py",
        versions="torch 2.11 to 2.13",
        is_in_traces=False,
        probe=Expecting(_KNOWN),
        replace=copying,
    ),
)
