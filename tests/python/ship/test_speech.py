"""Recordings to texts for onnxruntime-genai, token for token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from exportguard.command_line import main
from exportguard.errors import InvalidArgumentError
from exportguard.models import BuildOptions
from exportguard.onnx_model import load
from exportguard.runners.genai import generate
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship import FolderOptions, export_model
from exportguard.ship.quantization import QUANTIZATIONS
from exportguard.ship.recorded import validate_export

SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 3}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with as many frames and states as Whisper has, whose tokens differ."""
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=32, decoder_ffn_dim=32, vocab_size=99, num_mel_bins=16, max_source_positions=1500,
        max_target_positions=40, suppress_tokens=None, begin_suppress_tokens=None, **SPECIAL,
    )  # fmt: skip
    model: Any = transformers.WhisperForConditionalGeneration(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.3)
    model.generation_config = transformers.GenerationConfig(**SPECIAL)
    folder = tmp_path_factory.mktemp("speech") / "source"
    model.save_pretrained(folder)
    return folder


def test_the_runtime_writes_what_the_model_writes(source: Path, tmp_path: Path) -> None:
    result = export_model(source, tmp_path / "out", FolderOptions(runtime="genai"))
    assert result.runtime_agrees
    assert [one.agrees for one in result.comparisons] == [True] * 6
    assert validate_export(tmp_path / "out").ok

    # Elsewhere, and against the model's own generation.
    recording = torch.randn(1, 16, 3000)
    model: Any = transformers.WhisperForConditionalGeneration.from_pretrained(source).eval()
    ids, steps = torch.tensor([[3, 7]]), 8
    expected = ids
    with torch.no_grad():
        for _ in range(steps):
            logits = model(input_features=recording, decoder_input_ids=expected).logits[:, -1:]
            logits[..., SPECIAL["eos_token_id"]] = -torch.inf  # the end is not looked for
            expected = torch.cat([expected, logits.argmax(-1)], dim=1)
    assert generate(tmp_path / "out", ids, 2 + steps, {"audio_features": recording}).tolist() == expected.tolist()
    assert len(set(expected[0].tolist())) > 4


def test_the_decoder_is_given_no_states(source: Path, tmp_path: Path) -> None:
    export_model(source, tmp_path / "out", FolderOptions(runtime="genai", verify=False))
    decoder = OrtSession(tmp_path / "out" / "decoder_model.onnx")
    assert [name for name in decoder.input_names if "past" not in name] == ["input_ids"]
    assert [name for name in decoder.output_names if ".decoder." not in name] == ["logits"]
    told = json.loads((tmp_path / "out" / "genai_config.json").read_text())
    assert told["model"]["type"] == "whisper"


def test_one_of_half_precision_takes_and_returns_float32_throughout(source: Path, tmp_path: Path) -> None:
    build = BuildOptions(dtype=torch.float16, float32_io=["*"])
    result = export_model(source, tmp_path / "out", FolderOptions(runtime="genai", build=build))
    assert result.runtime_agrees
    assert all(one.agrees for one in result.comparisons)
    for name in ("encoder_model", "decoder_model"):
        model = load(tmp_path / "out" / f"{name}.onnx")
        assert "f16" not in {value.dtype for value in (*model.inputs, *model.outputs)}


def test_a_quantized_one_runs(source: Path, tmp_path: Path) -> None:
    options = FolderOptions(runtime="genai", quantize=QUANTIZATIONS["int8"])
    result = export_model(source, tmp_path / "out", options)
    assert result.runtime_agrees
    assert result.quantization is not None
    assert result.quantization.quantized > 10
    assert result.agreement["tokens_equal"] > 0.5


def test_a_model_with_other_lengths_is_refused_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export", "-m", "whisper", "-t", "automatic-speech-recognition", "--for", "genai", "-q"]
    assert main([*command, "-o", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert (
        "with 3000 frames and 1500 states, and that of whisper takes input_features [2, 80, 128] and makes 64" in told
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "task"), [("t5", "text2text-generation"), ("vit", "image-classification")])
def test_what_the_runtime_has_no_kind_for_is_refused(name: str, task: str, tmp_path: Path) -> None:
    options = FolderOptions(runtime="genai", build=BuildOptions(task=task))
    with pytest.raises(
        InvalidArgumentError, match="folders are for text-generation and automatic-speech-recognition and"
    ):
        export_model(name, tmp_path / "out", options)
