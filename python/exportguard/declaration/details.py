"""Which functions the installed patches replaced, and which of them a graph went through."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from exportguard.declaration.patch import Patch, Replacement
from exportguard.declaration.replaced_function import PatchedFunction

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def _frames(graph_module: torch.fx.GraphModule) -> Iterator[tuple[str, int]]:
    for module in graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                for frame in _FRAME.finditer(node.meta.get("stack_trace") or ""):
                    yield frame["file"], int(frame["line"])


@dataclass
class PatchDetails:
    """The functions that guards replaced, in the order they did.

    >>> from exportguard import torch_export_patches
    >>> details = PatchDetails()
    >>> with torch_export_patches(patch_details=details):
    ...     pass
    >>> all(patch.function_to_patch is not patch.patch for patch in details.patched)
    True
    """

    _followed: list[tuple[Patch, list[Replacement]]] = field(default_factory=list)

    @property
    def patched(self) -> list[PatchedFunction]:
        """The functions so far; those of models that are imported while a guard is open come with the import."""
        return [function for patch, replaced in self._followed for function in patch.replaced_functions(replaced)]

    def add_all(self, patches: Iterable[Patch]) -> None:
        """Adds what these patches replaced when they were installed last, and what they replace until the next time."""
        self._followed += [(patch, patch.installed) for patch in patches]

    def patches_involved_in_graph(self, program: torch.export.ExportedProgram) -> list[PatchedFunction]:
        """The replaced functions that a node of the program, or of one of its bodies, was made by.

        Not those that every call goes through: the nodes of bodies have all frames.
        """
        frames = set(_frames(program.graph_module))
        found = (one for patch, own in self._followed if patch.is_in_traces for one in patch.replaced_functions(own))
        return [function for function in found if any(function.covers(*frame) for frame in frames)]
