"""Where onnxruntime spends its time, by operator, layer and module."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import exportguard
from exportguard.command_line import main
from exportguard.validation.profile import layer_of, page_of, profile
from fault_models import FAMILIES


@pytest.fixture(scope="module")
def model() -> exportguard.OnnxModel:
    module, args, shapes = FAMILIES["encoder"](2)
    return exportguard.to_onnx(module, args, dynamic_shapes=shapes)


def test_every_time_is_of_a_layer_of_the_model(model: exportguard.OnnxModel) -> None:
    found = profile(model, {"x": torch.randn(2, 6, 16)}, runs=2)
    assert {"blocks.0", "blocks.1"} <= {share.name for share in found.by_layer()}
    assert "MatMul" in {share.name for share in found.by_operator()}
    assert any(share.name.startswith("blocks.1.self_attn") for share in found.by_module())
    for shares in (found.by_layer(), found.by_module(), found.by_operator()):
        assert sum(share.seconds for share in shares) == pytest.approx(found.seconds)
        assert sum(share.nodes for share in shares) == len(found.nodes)
    assert 0 < found.seconds <= 1.5 * found.wall


def test_the_page_needs_no_other_file(model: exportguard.OnnxModel) -> None:
    page = page_of(profile(model, {"x": torch.randn(2, 6, 16)}, runs=1), "a <model>")
    assert "a &lt;model&gt;" in page
    assert "blocks.1" in page
    assert "http" not in page


def test_the_command_prints_and_writes(
    model: exportguard.OnnxModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.save(tmp_path / "m.onnx")
    page = tmp_path / "m.html"
    assert main(["profile", str(tmp_path / "m.onnx"), "--runs", "1", "--sizes", "seq=4", "--html", str(page)]) == 0
    assert "blocks.0" in capsys.readouterr().out
    assert "<table>" in page.read_text()
    assert main(["profile", str(tmp_path / "m.onnx"), "--runs", "0"]) == 2


@pytest.mark.parametrize(
    ("module", "layer"),
    [("model.layers.11.mlp.up_proj", "model.layers.11"), ("lm_head", "lm_head"), ("", ""), ("0.conv", "0.conv")],
)
def test_a_layer_ends_with_the_first_number(module: str, layer: str) -> None:
    assert layer_of(module) == layer
