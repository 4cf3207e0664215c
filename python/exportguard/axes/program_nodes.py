"""The nodes of a program that call some operators, and the lines of the model that made them."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from exportguard.model_code import is_users
from exportguard.repeats.markers import MARKER
from exportguard.repeats.paths import Path

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def calls_of(program: ExportedProgram, operators: Sequence[Any]) -> Iterator[Node]:
    """Every call of one of the operators, those in branches, loops and the blocks that were replayed among them."""
    modules = program.graph_module.modules()
    waiting: list[Graph] = [module.graph for module in modules if isinstance(module, GraphModule)]
    met: set[Path] = set()
    while waiting:
        graph = waiting.pop()
        for target in operators:
            yield from graph.find_nodes(op="call_function", target=target)
        paths = {marker.meta["exportguard_path"] for marker in graph.find_nodes(op="call_function", target=MARKER)}
        waiting += [path.graph for path in paths - met]
        met |= paths


def line_of(node: Node) -> str:
    """The innermost line of the model that made the node."""
    frames = _FRAME.finditer(node.meta.get("stack_trace") or "")
    places = [(frame["file"], int(frame["line"])) for frame in frames if is_users(frame["file"])]
    return f"{places[-1][0]}:{places[-1][1]}: {linecache.getline(*places[-1]).strip()}" if places else ""
