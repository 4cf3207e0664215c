"""Counts where a model stays on the way from `to_onnx` to the file.

A stay is a file of the package with a function that is handed the module, the program, the graph or what holds one of
them; calls that follow each other in one file are one stay, a file that comes again is one more, and a return. Each
function counts once, however often it is called. What torch calls, patches for example, is torch's way.

python benchmarks/way_of_a_model.py            # counts
python benchmarks/way_of_a_model.py --list     # the functions, in the order of the first call
python benchmarks/way_of_a_model.py --proof    # with those that look for bounds, and ask what is tried with the model
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import torch

import exportguard
from exportguard import ExportOptions, OnnxModel, _core, to_onnx
from exportguard.axes.bounds import Claim
from exportguard.axes.model_run import ModelRun, TriedCall
from exportguard.axes.trace import Trace
from exportguard.axes.traced_program import TracedProgram
from exportguard.axes.trial import Trial
from exportguard.reading import Exported, ReadProgram
from exportguard.request import ExportRequest
from exportguard.rewrites.state import KeptModule

ROOT = str(Path(exportguard.__file__).parent)
TORCH = str(Path(torch.__file__).parent)
CARRIERS = (
    torch.nn.Module,
    torch.export.ExportedProgram,
    ExportRequest,
    Exported,
    Claim,
    KeptModule,
    ModelRun,
    TracedProgram,
    TriedCall,
    Trial,
    ReadProgram,
    _core.Model,
    OnnxModel,
)


class Way:
    """The functions that were handed the model, in the order of their first call."""

    def __init__(self, carriers: tuple[type, ...]) -> None:
        self._carriers = carriers
        self.functions: dict[tuple[str, str], None] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or code.co_name.startswith("<"):
            return
        if _is_handed_one_of(self._carriers, frame) and not _is_called_by_torch(frame):
            self.functions.setdefault((str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname))

    def stays(self) -> list[str]:
        """The files, one for each visit."""
        return [file for file, _ in itertools.groupby(file for file, _ in self.functions)]


def _is_handed_one_of(carriers: tuple[type, ...], frame: FrameType) -> bool:
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
    return any(isinstance(frame.f_locals.get(name), carriers) for name in names)


def _is_called_by_torch(frame: FrameType) -> bool:
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_filename.startswith(TORCH) and caller.f_code.co_name != "decorate_context":
            return True
        caller = caller.f_back
    return False


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--proof", action="store_true")
    options = parser.parse_args()

    model, inputs = Model().eval(), (torch.zeros(3, 4),)
    asked: Any = ({0: "batch"},)
    to_onnx(model, inputs, dynamic_shapes=asked)  # what is imported and read once
    way = Way((*CARRIERS, Trace) if options.proof else CARRIERS)
    with TemporaryDirectory() as folder:
        sys.setprofile(way)
        try:
            file, all_of_it = Path(folder) / "model.onnx", ExportOptions(repeats="trace all")
            to_onnx(model, inputs, dynamic_shapes=asked, output=file, options=all_of_it)
        finally:
            sys.setprofile(None)

    stays = way.stays()
    print(f"{len(stays)} stays in {len(set(stays))} files, {len(stays) - len(set(stays))} returns")
    for file, function in way.functions if options.list else ():
        print(f"  {file}: {function}")


if __name__ == "__main__":
    main()
