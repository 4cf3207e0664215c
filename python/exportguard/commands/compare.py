"""Run two ONNX models side by side and name the first node that diverges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ..arguments import sizes_of
from ..command_line import argument
from ..devices import require_device
from ..validation.discrepancies import Tolerance
from ..validation.divergence import DivergenceOptions, compare
from ..validation.reproduction import write_reproduction
from ..validation.tensor_files import load_tensors


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `exportguard compare`."""

    a: Path = argument(help="The model that is right.")
    b: Path = argument(help="The model that is looked at.")
    inputs: Path | None = argument("--inputs", help="A .safetensors or .npz file; drawn without.", default=None)
    sizes: str = argument("--sizes", help="Of drawn inputs, by axis: batch=2,seq=7.", default="")
    seed: int = argument("--seed", help="Of drawn inputs.", default=0)
    runner: str = argument("--runner", help="What runs B.", default="evaluator", choices=("evaluator", "onnxruntime"))
    device: str = argument("--device", help="cpu, cuda, cuda:1, …", default="cpu")
    absolute: float | None = argument(
        "--absolute", help="Tolerance; that of each dtype without.", default=None, least=0
    )
    relative: float | None = argument("--relative", help="Tolerance, of the expected value.", default=None, least=0)
    output: Path | None = argument("-o", "--output", help="A folder for a reproduction.", default=None)


def run(options: Options) -> int:
    """Prints what was found and returns 0 if the models agree."""
    console = Console(stderr=False)
    require_device(options.device)
    report = compare(
        options.a,
        options.b,
        load_tensors(options.inputs) if options.inputs else None,
        sizes=sizes_of(options.sizes),
        seed=options.seed,
        options=DivergenceOptions(
            runner="onnxruntime" if options.runner == "onnxruntime" else "evaluator",
            device=options.device,
            tolerance=_tolerance(options),
        ),
    )
    console.print(str(report), markup=False, highlight=False, soft_wrap=True)
    if options.output and report.first is not None:
        folder = write_reproduction(report.first, options.output)
        console.print(f"reproduction in {folder}", markup=False, soft_wrap=True)
    return 0 if report.agrees else 1


def _tolerance(options: Options) -> Tolerance | None:
    if options.absolute is None and options.relative is None:
        return None
    return Tolerance(absolute=options.absolute or 0.0, relative=options.relative or 0.0)
