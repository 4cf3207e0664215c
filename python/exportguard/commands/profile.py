"""Show where onnxruntime spends the time of an ONNX model: by operator, layer and module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..arguments import sizes_of
from ..command_line import argument
from ..errors import FileError
from ..onnx_model import load, require_writable
from ..validation.model_inputs import random_inputs
from ..validation.profile import Profile, Share, page_of, profile
from ..validation.tensor_files import load_tensors


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `exportguard profile`."""

    model: Path = argument(help="The model.")
    inputs: Path | None = argument("--inputs", help="A .safetensors or .npz file; drawn without.", default=None)
    sizes: str = argument("--sizes", help="Of drawn inputs, by axis: batch=2,seq=7.", default="")
    runs: int = argument("--runs", help="How many are counted.", default=10, least=1)
    device: str = argument("--device", help="cpu, cuda, cuda:1, …", default="cpu")
    rows: int = argument("--rows", help="Of each table.", default=12, least=1)
    html: Path | None = argument("--html", help="A file for a page with bars.", default=None)


def run(options: Options) -> int:
    """Prints the tables, and writes the page."""
    console = Console(stderr=False)
    if options.html:
        require_writable(options.html, "--html")
    model = load(options.model)
    inputs = load_tensors(options.inputs) if options.inputs else random_inputs(model, sizes_of(options.sizes))
    found = profile(model, inputs, runs=options.runs, device=options.device)
    console.print(f"{1e3 * found.wall:.3f} ms a run, {1e3 * found.seconds:.3f} ms in {len(found.nodes)} nodes")
    parts = {"operator": found.by_operator(), "layer": found.by_layer(), "module": found.by_module()}
    for name, shares in parts.items():
        console.print(_table(name, shares[: options.rows], found))
    if options.html:
        _write(options.html, page_of(found, options.model.name))
    return 0


def _table(name: str, shares: list[Share], found: Profile) -> Table:
    table = Table(name, "nodes", "ms", "%", box=None)
    for share in shares:
        part = 100 * share.seconds / found.seconds if found.seconds else 0.0
        table.add_row(escape(share.name), str(share.nodes), f"{1e3 * share.seconds:.3f}", f"{part:.1f}")
    return table


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write the page to {path}: {error.strerror}") from error
