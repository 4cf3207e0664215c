"""Models of pictures and texts in three files, token for token in onnxruntime-genai."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from exportguard.command_line import main
from exportguard.errors import InvalidArgumentError
from exportguard.models import BuildOptions, ModelCase, build_model
from exportguard.runners.genai import generate
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship import FolderOptions, export_model
from exportguard.ship.quantization import QUANTIZATIONS
from exportguard.ship.recorded import validate_export

BUILD = BuildOptions(task="image-text-to-text")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelCase, Path]:
    folder = tmp_path_factory.mktemp("pictures") / "llava"
    result = export_model("llava", folder, FolderOptions(runtime="genai", build=BUILD))
    assert result.runtime_agrees
    assert [one.agrees for one in result.comparisons] == [True] * 6
    return build_model("llava", BUILD), folder


def written(model: Any, inputs: dict[str, torch.Tensor], steps: int, banned: list[int]) -> torch.Tensor:
    tokens = inputs["input_ids"]
    with torch.no_grad():
        for _ in range(steps):
            mask = torch.ones_like(tokens)
            logits = model(**{**inputs, "input_ids": tokens, "attention_mask": mask}).logits[:, -1]
            logits[:, banned] = -torch.inf
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
    return tokens


def test_other_pictures_lead_to_other_tokens(exported: tuple[ModelCase, Path]) -> None:
    case, folder = exported
    inputs = case.inputs({**case.task.sizes, "batch": 1, "seq": 6})
    end = case.model.generation_config.eos_token_id
    banned = [token for token in [end] if isinstance(token, int)]
    places = (inputs["input_ids"] == case.model.config.image_token_id).sum().reshape(1)
    seen = []
    for seed in range(3):
        torch.manual_seed(seed)
        inputs["pixel_values"] = torch.randn_like(inputs["pixel_values"]) * 3
        expected = written(case.model, inputs, 5, banned)
        others = {"pixel_values": inputs["pixel_values"], "num_image_tokens": places}
        got = generate(folder, inputs["input_ids"], expected.shape[1], others)
        assert got.tolist() == expected.tolist()
        seen.append(got.tolist())
    assert any(one != seen[0] for one in seen)


def test_a_text_without_a_picture_embeds_its_tokens_alone(exported: tuple[ModelCase, Path]) -> None:
    case, folder = exported
    ids = torch.tensor([[4, 7, 9]])
    embedding = OrtSession(folder / "embedding.onnx")
    none = torch.zeros(0, case.model.get_input_embeddings()(ids).shape[-1])
    (got,) = embedding.run({"input_ids": ids, "image_features": none})
    assert torch.equal(got, case.model.get_input_embeddings()(ids).detach())


def test_an_export_is_proved_again_file_by_file(exported: tuple[ModelCase, Path]) -> None:
    _, folder = exported
    report = validate_export(folder)
    assert report.ok
    assert len(report.sets) == 5  # one picture, two steps of the others


def test_a_quantized_one_is_measured(tmp_path: Path) -> None:
    options = FolderOptions(runtime="genai", build=BUILD, quantize=QUANTIZATIONS["int8"])
    result = export_model("llava", tmp_path / "out", options)
    assert result.quantization is not None
    assert result.quantization.quantized > 10
    assert result.agreement["tokens_equal"] > 0.5


REFUSED = {
    "gemma3": "change more than the embedded tokens in their places",  # and the mask of their tokens
    "qwen2_5_vl": "has no features for one tensor of pixels",
}


@pytest.mark.parametrize("name", REFUSED)
def test_pictures_that_do_more_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=REFUSED[name]):
        export_model(name, tmp_path / "out", FolderOptions(runtime="genai", build=BUILD))
    assert not list(tmp_path.iterdir())


def test_a_dry_run_names_the_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export", "-m", "llava", "-t", "image-text-to-text", "--for", "genai", "--dry-run"]
    assert main([*command, "-o", str(tmp_path / "out")]) == 0
    assert "what sees, what embeds, and a decoder" in capsys.readouterr().out
