"""Weights in several files: as large as asked, and the same numbers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy
import onnx
import pytest
import torch

import exportguard
from exportguard.command_line import main
from exportguard.errors import InvalidArgumentError
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship.layout import arrange_for_transformers_js
from exportguard.ship.shards import bytes_of, split_data

WIDTHS = (64, 200, 7, 64, 300, 8, 8, 64)


class Layers(torch.nn.Module):
    """Weights of many sizes, one of them used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(rows, columns) for rows, columns in itertools.pairwise(WIDTHS)
        )
        self.tied = self.layers[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.tied(x)


X = torch.ones(2, WIDTHS[0])


def written(folder: Path) -> Path:
    torch.manual_seed(0)
    return exportguard.to_onnx(Layers().eval(), (X,)).save(folder / "model.onnx", external_data="always")


@pytest.mark.parametrize("size", [1, 5_000, 16_384, 50_000, 100_000, 10**9])
def test_parts_are_as_large_as_asked_and_hold_the_same_numbers(size: int, tmp_path: Path) -> None:
    file = written(tmp_path)
    before, expected = onnx.load(str(file)), OrtSession(file).run({"x": X})[0]
    largest = max(len(one.raw_data) for one in before.graph.initializer)
    total = (tmp_path / "model.onnx.data").stat().st_size
    names = split_data(file, size)
    assert sorted(names) == sorted(path.name for path in tmp_path.glob("*.data*"))
    sizes = [(tmp_path / name).stat().st_size for name in names]
    assert all(part <= max(size, largest) + 4096 for part in sizes)  # and what aligns the next tensor
    assert sum(sizes) == total
    assert (len(names) == 1) == (size >= total)
    onnx.checker.check_model(str(file))
    after = onnx.load(str(file))
    for one, other in zip(before.graph.initializer, after.graph.initializer, strict=True):
        assert numpy.array_equal(onnx.numpy_helper.to_array(one), onnx.numpy_helper.to_array(other)), one.name
    assert torch.equal(OrtSession(file).run({"x": X})[0], expected)


def test_a_file_without_data_is_left_as_it_is(tmp_path: Path) -> None:
    file = exportguard.to_onnx(Layers().eval(), (X,)).save(tmp_path / "model.onnx")
    assert split_data(file, 10) == []
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_transformers_js_is_told_how_many_parts_there_are(tmp_path: Path) -> None:
    names = split_data(written(tmp_path), 50_000)
    arrange_for_transformers_js(tmp_path)
    parts = ["model.onnx_data", *(f"model.onnx_data_{number}" for number in range(1, len(names)))]
    assert sorted(path.name for path in (tmp_path / "onnx").iterdir()) == sorted(["model.onnx", *parts])
    told = json.loads((tmp_path / "config.json").read_text())["transformers.js_config"]
    assert told["use_external_data_format"] == {"model": len(names)}
    assert OrtSession(tmp_path / "onnx" / "model.onnx").run({"x": X})[0].shape == (2, 200)


@pytest.mark.parametrize("text", ["", "two", "0", "-1", "2 PB", "1e3", "0.0001KB", "inf"])
def test_what_is_no_size_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="a size is a number and one of KB, MB"):
        bytes_of(text)
    if text:
        assert main(["export", "-m", "llama", "-o", str(tmp_path / "out"), "--shard-size", text]) == 2
