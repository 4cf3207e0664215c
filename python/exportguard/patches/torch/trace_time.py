"""What torch.export does for others than a converter, and takes its time for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from exportguard.declaration import NEEDED, Patch, Verdict, does_not_fit, resolve, resolve_object
from exportguard.declaration.expected import Expected, Expecting, expecting
from exportguard.repeats.plan import current_plan

if TYPE_CHECKING:
    from exportguard._core import Changes

_METADATA = "torch.fx.experimental.proxy_tensor._extract_tensor_metadata"
_CONFIG = "torch._dynamo.config"
_CACHE = "fake_tensor_cache_enabled"
_OVERRIDE = "torch._export.non_strict_utils._NonStrictTorchFunctionHandler._override"
_BINDINGS = "torch.export._trace._replace_unbacked_bindings"
_RANGES = "torch.utils._sympy.value_ranges.ValueRanges.__and__"
#: The tests by which torch 2.11 to 2.13 finds the functions that it replaces while it traces; it returns the others.
_OVERRIDDEN = (
    "func in traceable_collective_remaps",
    "func is torch.tensor",
    'func.__name__ == "__getitem__" and isinstance(args[0], torch.Tensor)',
    "func",
)
_LAZY = "torch.fx._lazy_graph_module._use_lazy_graph_module_flag"
_USE_LAZY = "torch.fx._lazy_graph_module._use_lazy_graph_module"
_STRICT = "torch.export._trace._export_to_torch_ir"
_MAKE = "torch.fx._lazy_graph_module._make_graph_module"
_MODULE = "torch.export.exported_program._create_graph_module_for_export"


def no_metadata(original: Callable[..., Any]) -> Callable[..., Any]:
    """The record that torch makes of each value beside its example; C++ reads the example alone."""

    @functools.wraps(original)
    def extract(*args: Any, **kwargs: Any) -> Any:
        return None if current_plan().keeps_markers else original(*args, **kwargs)

    return extract


def _no_cache(changes: Changes) -> None:
    """A look-up in the cache costs more than most fake kernels, and what repeats is not asked for."""
    config = resolve_object(_CONFIG)
    before = getattr(config, _CACHE)
    changes.call(lambda: setattr(config, _CACHE, False), lambda: setattr(config, _CACHE, before), f"{_CONFIG}.{_CACHE}")


def _lazy_code(changes: Changes) -> None:
    """Graphs are converted and never run, so Python need not compile them."""
    target = resolve(_LAZY)
    changes.set_attribute(target.owner, target.name, True)


def code_of_strict_graphs(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_export_to_torch_ir`, whose graph says how its inputs are taken apart when it is compiled, and is asked that."""

    @functools.wraps(original)
    def export(*args: Any, **kwargs: Any) -> Any:
        with resolve_object(_USE_LAZY)(False):
            return original(*args, **kwargs)

    return export


def few_overrides(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands for a function that the model calls: most stand for themselves, and torch looks at each of them.

    Those that do not are `torch.tensor`, indexing, and collectives of processes.
    """

    @functools.wraps(original)
    def override(handler: Any, func: Any, args: Any, kwargs: Any) -> Any:
        if (
            func is torch.tensor
            or func.__name__ == "__getitem__"
            or "distributed" in (getattr(func, "__module__", None) or "")
        ):
            return original(handler, func, args, kwargs)
        return func, args, kwargs

    return override


def bindings_of_unbacked_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_replace_unbacked_bindings`, which looks through every value of a graph for sizes that depend on data."""

    @functools.wraps(original)
    def replace(gm: Any) -> Any:
        env = resolve_object("torch._export.utils._get_shape_env_from_gm")(gm)
        is_unbacked = resolve_object("torch.utils._sympy.symbol.symbol_is_type")
        kinds = resolve_object("torch.utils._sympy.symbol.SymT")
        unbacked = (kinds.UNBACKED_INT, kinds.UNBACKED_FLOAT)
        if env is None or any(is_unbacked(symbol, unbacked) for symbol in env.var_to_range):
            return original(gm)
        for node in gm.graph.nodes:
            node.meta.pop("unbacked_bindings", None)
        return None

    return replace


def equal_ranges(original: Callable[..., Any]) -> Callable[..., Any]:
    """`ValueRanges.__and__`: what two equal ranges have in common is one of them."""

    @functools.wraps(original)
    def intersection(self: Any, other: Any) -> Any:
        kinds = ((it.is_bool, it.is_int, it.is_float) for it in (self, other))
        is_same = len({*kinds}) == 1 and self.lower == other.lower and self.upper == other.upper
        return self if is_same else original(self, other)

    return intersection


def lazy_program(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_create_graph_module_for_export`: a program that is only converted has no code until it is asked for."""

    @functools.wraps(original)
    def create(root: Any, graph: Any) -> Any:
        return resolve_object(_MAKE)(root, graph) if current_plan().keeps_markers else original(root, graph)

    return create


def _probe_cache() -> Verdict:
    is_there = hasattr(resolve_object(_CONFIG), _CACHE)
    return NEEDED if is_there else does_not_fit(f"{_CONFIG} has no {_CACHE}")


def _probe_lazy() -> Verdict:
    is_flag = isinstance(resolve(_LAZY).raw, bool)
    return NEEDED if is_flag else does_not_fit("it is not a flag")


PATCHES = (
    Patch(
        name="bindings of sizes that depend on data",
        kind="torch",
        target=_BINDINGS,
        reason="every value of a graph is looked through for sizes that depend on data, where there is none",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/export/_trace.py",
        is_in_traces=False,
        probe=expecting(
            Expected(
                path=_BINDINGS,
                has=(
                    'node.meta.pop("unbacked_bindings", None)',
                    "shape_env.var_to_range",
                    "symbol_is_type(symbol, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT))",
                    "$find(..., pending=base_unbacked_symbols)",
                ),
            )
        ),
        replace=bindings_of_unbacked_sizes,
    ),
    Patch(
        name="equal ranges of sizes",
        kind="torch",
        target=_RANGES,
        reason="each axis of each layer's cache is asked for the range of one symbol, in arithmetic of expressions",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/_sympy/value_ranges.py",
        is_in_traces=False,
        probe=expecting(
            Expected(
                path=_RANGES,
                has=("sympy.Max(self.lower, other.lower)", "sympy.Min(self.upper, other.upper)"),
            )
        ),
        replace=equal_ranges,
    ),
    Patch(
        name="metadata beside the examples",
        kind="torch",
        target=_METADATA,
        reason="a fifth of the time of a trace goes into a record of each value that a converter does not read",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/proxy_tensor.py",
        is_in_traces=False,
        probe=expecting(
            Expected(path=_METADATA),
            Expected(
                path="torch.fx.experimental.proxy_tensor.set_meta",
                has=('$node.meta["tensor_meta"] = _extract_tensor_metadata(...)',),
            ),
        ),
        replace=no_metadata,
    ),
    Patch(
        name="cache of fake tensors",
        kind="torch",
        target=f"{_CONFIG}.{_CACHE}",
        reason="a look-up takes longer than most fake kernels, and what repeats is traced once anyway",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_subclasses/fake_tensor.py",
        awaits=_CONFIG,
        probe=Expecting(
            (
                Expected(
                    path="torch._subclasses.fake_tensor.FakeTensorMode.__init__",
                    has=(f"torch._dynamo.config.{_CACHE}",),
                ),
            ),
            then=_probe_cache,
        ),
        apply=_no_cache,
    ),
    Patch(
        name="functions that stand for themselves",
        kind="torch",
        target=_OVERRIDE,
        reason="each function that a model calls is looked up among the few that torch.export replaces",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_export/non_strict_utils.py",
        is_in_traces=False,
        probe=expecting(
            Expected(path=_OVERRIDE, has=("return func, args, kwargs",), variable="func", uses=_OVERRIDDEN),
        ),
        replace=few_overrides,
    ),
    Patch(
        name="code of graphs",
        kind="torch",
        target=_LAZY,
        reason="graphs that are only converted are compiled to Python several times on the way",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/_lazy_graph_module.py",
        awaits="torch.fx._lazy_graph_module",
        probe=_probe_lazy,
        apply=_lazy_code,
    ),
    Patch(
        name="code of strict graphs",
        kind="torch",
        target=_STRICT,
        awaits="torch.export._trace",
        reason="a strict export asks the graph that it made for the specification of its inputs, which a graph without "
        "code does not have",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/export/_trace.py",
        is_in_traces=False,
        probe=expecting(
            Expected(path="torch.export._trace._strict_export", has=("_export_to_torch_ir(...)",)),
            Expected(path=_USE_LAZY, parameters="should_use"),
        ),
        replace=code_of_strict_graphs,
    ),
    Patch(
        name="code of programs",
        kind="torch",
        target=_MODULE,
        reason="a program has an input for each weight, and is compiled to Python though nobody calls it",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/export/exported_program.py",
        is_in_traces=False,
        probe=expecting(
            Expected(path=_MODULE, parameters="root, graph", has=("torch.fx.GraphModule(root, graph)",)),
            Expected(path=_MAKE, has=("_get_graph_module_cls()",)),
        ),
        replace=lazy_program,
    ),
)
