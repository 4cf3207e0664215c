"""Bodies of control flow inside other bodies, which torch deletes as unused."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed
from exportguard.patches.torch.repeated_blocks import EXPORTER


def _bodies(module: torch.fx.GraphModule) -> list[tuple[torch.nn.Module, str, torch.nn.Module]]:
    """What is below the graphs that operators such as cond are given: its owner, its name and itself."""
    targets = {node.target for node in module.graph.find_nodes(op="get_attr") if isinstance(node.target, str)}
    graphs = [m for name, m in module.named_modules() if name in targets and isinstance(m, torch.fx.GraphModule)]
    owners = [part for graph in graphs for part in graph.modules()]
    return [(owner, name, child) for owner in owners for name, child in owner.named_children()]


def keep_bodies(original: Callable[[torch.fx.GraphModule], None]) -> Callable[[torch.fx.GraphModule], None]:
    """The deletion of unused submodules, but for those of a graph that is used."""

    @functools.wraps(original)
    def delete_all_unused_submodules(self: torch.fx.GraphModule) -> None:
        bodies = _bodies(self)
        original(self)
        for owner, name, child in bodies:
            owner.add_module(name, child)

    return delete_all_unused_submodules


def _probe() -> Verdict:
    inner = torch.fx.GraphModule({}, torch.fx.Graph())
    inner.add_module("below", torch.nn.Identity())
    outer = torch.fx.Graph()
    outer.output(outer.get_attr("inner"))
    module = torch.fx.GraphModule({"inner": inner}, outer)
    module.delete_all_unused_submodules()
    return not_needed("torch keeps them") if hasattr(module.get_submodule("inner"), "below") else NEEDED


PATCHES = (
    Patch(
        name="bodies of control flow in bodies",
        kind="torch",
        target="torch.fx.GraphModule.delete_all_unused_submodules",
        awaits=EXPORTER,
        reason="under torch.no_grad(), the export of a condition inside a condition loses the inner branches",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/graph_module.py",
        probe=_probe,
        replace=keep_bodies,
    ),
)
