"""Where onnxruntime spends the time of a model: by operator, by module of the user's model, and by layer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from .. import _core
from ..arguments import require_count
from ..errors import ExportGuardError
from ..onnx_model import OnnxModel
from ..runners.names import require_same
from ..runners.onnxruntime import OrtSession, SessionOptions

_KERNEL = "_kernel_time"  # behind the node's name, in the event of its run
_LAYER = re.compile(r"^(?:.*?\.)?\w+\.\d+")
_OF_RUNTIME = "(the runtime's own)"
_OUTSIDE = "(outside of modules)"


@dataclass(frozen=True)
class NodeTime:
    """The time of one node in one run, in seconds; `module` and `source` are empty for nodes of the runtime's own."""

    name: str
    operator: str
    module: str
    source: str
    seconds: float


@dataclass(frozen=True)
class Share:
    """The time of some nodes together, in seconds for one run."""

    name: str
    nodes: int
    seconds: float


@dataclass(frozen=True)
class Profile:
    """The nodes that ran, with their mean times over `runs`; `wall` is the mean of the whole run, in seconds."""

    nodes: tuple[NodeTime, ...]
    runs: int
    wall: float

    @property
    def seconds(self) -> float:
        """Of all nodes together."""
        return sum(node.seconds for node in self.nodes)

    def by_operator(self) -> list[Share]:
        """The dearest first."""
        return self._shares(lambda node: node.operator)

    def by_module(self) -> list[Share]:
        """By the path of the module whose code a node comes from."""
        return self._shares(lambda node: node.module)

    def by_layer(self) -> list[Share]:
        """By the first numbered module on the path: `model.layers.3`."""
        return self._shares(lambda node: layer_of(node.module))

    def _shares(self, key: Callable[[NodeTime], str]) -> list[Share]:
        groups: dict[str, list[NodeTime]] = {}
        for node in self.nodes:
            groups.setdefault(key(node), []).append(node)
        shares = [Share(name, len(nodes), sum(node.seconds for node in nodes)) for name, nodes in groups.items()]
        return sorted(shares, key=lambda share: -share.seconds)


def layer_of(module: str) -> str:
    """The part of a module's path up to the first number.

    >>> layer_of("model.layers.3.mlp.up_proj"), layer_of("lm_head")
    ('model.layers.3', 'lm_head')
    """
    found = _LAYER.match(module)
    return found.group() if found else module


def profile(model: OnnxModel, inputs: Mapping[str, torch.Tensor], *, runs: int = 10, device: str = "cpu") -> Profile:
    """Runs the model that often in onnxruntime, after one run that is not counted.

    Raises:
        InvalidArgumentError: `runs` is less than 1, or the inputs do not fit.
        FileError: the model cannot be written to a temporary folder.
        ExportGuardError: onnxruntime cannot load it.
    """
    require_count("runs", runs, at_least=1)
    require_same([value.name for value in model.inputs], list(inputs))
    with TemporaryDirectory(prefix="exportguard-") as folder:
        file = model.save(Path(folder) / "model.onnx")
        saved = _core.load(str(file))  # the names that the file has
        settings = SessionOptions(device=device, profile=Path(folder) / "profile")
        try:
            session = OrtSession(file, settings)
        except ExportGuardError:
            raise
        except Exception as error:  # onnxruntime has no common base for its own
            reason = str(error).replace(str(file), "the model")
            raise ExportGuardError(f"onnxruntime cannot load the model: {reason}") from error
        session.require_fitting(inputs)
        for _ in range(runs + 1):
            session.run(inputs)
        events = json.loads(session.end_profiling().read_text(encoding="utf-8"))
    return _profile(events, {node.name: node for node in _core.nodes(saved)}, runs)


def _profile(events: Iterable[Mapping[str, object]], known: Mapping[str, _core.NodeView], runs: int) -> Profile:
    walls = [_microseconds(event) for event in events if event.get("name") == "model_run"]
    times: dict[str, list[float]] = {}
    operators: dict[str, str] = {}
    for event in events:
        name = str(event.get("name", ""))
        arguments = event.get("args")
        if event.get("cat") != "Node" or not name.endswith(_KERNEL) or not isinstance(arguments, dict):
            continue
        name = name.removesuffix(_KERNEL)
        times.setdefault(name, []).append(_microseconds(event))
        operators[name] = str(arguments.get("op_name", ""))
    nodes = tuple(_node(name, operators[name], all_runs, known.get(name), runs) for name, all_runs in times.items())
    return Profile(nodes, runs, sum(walls[1:]) / 1e6 / runs)


def _node(name: str, operator: str, times: list[float], known: _core.NodeView | None, runs: int) -> NodeTime:
    counted = times[len(times) // (runs + 1) :]  # a node of a loop runs more than once in each run
    module = _OF_RUNTIME if known is None else known.module or _OUTSIDE
    source = known.where if known is not None else ""
    return NodeTime(name, operator, module, source, sum(counted) / 1e6 / runs)


def _microseconds(event: Mapping[str, object]) -> float:
    return float(str(event.get("dur", 0)))


# ---------------------------------------------------------------------------------------------------- the page

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 70em; color: #222 }}
table {{ border-collapse: collapse; width: 100%; margin-bottom: 2em }}
td, th {{ padding: 2px 8px; text-align: left; white-space: nowrap }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums }}
td.bar {{ width: 60% }}
td.bar div {{ background: #4878cf; height: 12px; min-width: 1px }}
</style>
<h1>{title}</h1>
<p>{summary}</p>
{tables}
</html>
"""


def page_of(found: Profile, title: str, rows: int = 40) -> str:
    """The profile as one HTML page with a bar for each share; no other file is needed."""
    parts = {"By operator": found.by_operator(), "By layer": found.by_layer(), "By module": found.by_module()}
    tables = "\n".join(_table(name, shares[:rows], found.seconds) for name, shares in parts.items())
    summary = f"{1e3 * found.wall:.3f} ms a run, of which {1e3 * found.seconds:.3f} ms in {len(found.nodes)} nodes"
    return _PAGE.format(title=escape(title), summary=f"{summary}; mean of {found.runs} runs.", tables=tables)


def _table(name: str, shares: list[Share], whole: float) -> str:
    rows = "\n".join(_row(share, whole) for share in shares)
    head = "<tr><th>name</th><th>nodes</th><th>ms</th><th>%</th><th></th></tr>"
    return f"<h2>{escape(name)}</h2>\n<table>{head}\n{rows}\n</table>"


def _row(share: Share, whole: float) -> str:
    part = 100 * share.seconds / whole if whole else 0.0
    return (
        f'<tr><td>{escape(share.name)}</td><td class="number">{share.nodes}</td>'
        f'<td class="number">{1e3 * share.seconds:.3f}</td><td class="number">{part:.1f}</td>'
        f'<td class="bar"><div style="width:{part:.2f}%"></div></td></tr>'
    )
