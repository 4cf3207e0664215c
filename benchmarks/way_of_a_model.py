"""Counts where a model stays on the way from `to_onnx` to the file: functions of the package that are handed it.

A stay is a function with the module, the program, the graph or what holds one of them among its arguments; a return is
one such function that is left for one that goes on with the model. Each counts once, however often it is called.

python benchmarks/way_of_a_model.py            # counts
python benchmarks/way_of_a_model.py --list     # in the order of the first call
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import torch

import exportguard
from exportguard import ExportOptions, OnnxModel, _core, to_onnx
from exportguard.request import ExportRequest
from exportguard.tracing import Exported

ROOT = Path(exportguard.__file__).parent
CARRIERS = (torch.nn.Module, torch.export.ExportedProgram, _core.Model, OnnxModel, ExportRequest, Exported)


class Way:
    """The functions that were handed the model, in order, and how often one was left for another of the way."""

    def __init__(self) -> None:
        self.stays: dict[str, None] = {}
        self.returns: set[str] = set()
        self._left = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(str(ROOT)):
            return
        if code.co_name.startswith("<") or not self._is_handed(frame):
            return
        place = f"{Path(code.co_filename).relative_to(ROOT)}: {code.co_qualname}"
        if event == "return":
            self._left = place
            return
        if self._left:
            self.returns.add(self._left)
            self._left = ""
        self.stays.setdefault(place)

    @staticmethod
    def _is_handed(frame: FrameType) -> bool:
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
        return any(isinstance(frame.f_locals.get(name), CARRIERS) for name in names)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()

    model, inputs = Model().eval(), (torch.zeros(3, 4),)
    to_onnx(model, inputs)  # what is imported and read once
    way = Way()
    with TemporaryDirectory() as folder:
        sys.setprofile(way)
        try:
            to_onnx(model, inputs, output=Path(folder) / "model.onnx", options=ExportOptions(repeats="trace all"))
        finally:
            sys.setprofile(None)

    files = {stay.partition(":")[0] for stay in way.stays}
    print(f"{len(way.stays)} stays in {len(files)} files, {len(way.returns)} returns")
    for stay in way.stays if options.list else ():
        print(f"  {stay}")


if __name__ == "__main__":
    main()
