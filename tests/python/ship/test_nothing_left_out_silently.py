"""What a folder does not have of its model is told, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from small_pictures import save_resnet

from exportguard.errors import InvalidArgumentError
from exportguard.models.catalogue import class_of_checkpoint
from exportguard.models.natural_inputs.pixels import pictures
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship import FolderOptions, export_model
from exportguard.ship.layout import MODEL_FILE

_SMALL: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def saved(model: Any, folder: Path) -> str:
    model.save_pretrained(folder)
    return str(folder)


def test_tensors_that_a_file_has_no_input_for_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = transformers.XLMConfig(vocab_size=60, emb_dim=16, n_layers=1, n_heads=2, n_langs=2)
    name = saved(transformers.XLMModel(config), tmp_path / "model")
    result = export_model(name, tmp_path / "out")
    told = ["langs", "lengths", "cache"]
    assert result.left_out == told
    assert "no input for langs, lengths, cache" in caplog.text
    assert json.loads((tmp_path / "out" / "export_report.json").read_text())["left_out"] == told


def test_pictures_have_the_size_that_the_processor_makes(tmp_path: Path) -> None:
    name = save_resnet(tmp_path / "model")
    processor = transformers.ConvNextImageProcessor(size={"shortest_edge": 96})
    processor.save_pretrained(name)
    export_model(name, tmp_path / "out")
    session = OrtSession(tmp_path / "out" / MODEL_FILE)
    made = processor(images=np.zeros((80, 50, 3), dtype=np.uint8), return_tensors="pt")
    assert session.run({"pixel_values": made["pixel_values"]})


def test_a_processor_in_the_working_folder_is_no_models_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers.ConvNextImageProcessor(size={"shortest_edge": 96}).save_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)
    made = pictures(torch.nn.Linear(1, 1), transformers.ResNetConfig(), 1)
    assert made.shape == (1, 3, 64, 64)


def test_a_processor_of_several_sizes_is_told_where_the_model_takes_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = transformers.ViTConfig(**{**_SMALL, "image_size": 32, "patch_size": 8})
    name = saved(transformers.ViTForImageClassification(config), tmp_path / "model")
    transformers.DetrImageProcessor(size={"shortest_edge": 40, "longest_edge": 90}).save_pretrained(name)
    export_model(name, tmp_path / "out")
    assert "makes pictures of several sizes" in caplog.text


def test_code_of_a_checkpoint_is_not_replaced_by_that_of_its_type(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    saved(transformers.LlamaForCausalLM(transformers.LlamaConfig(**_SMALL)), folder)
    config = json.loads((folder / "config.json").read_text())
    own = {"architectures": ["OwnForCausalLM"], "auto_map": {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}}
    (folder / "config.json").write_text(json.dumps({**config, **own}))
    with pytest.raises(InvalidArgumentError, match=r"OwnForCausalLM.*path/file\.py:function"):
        export_model(str(folder), tmp_path / "out")


def _vision_encoder_decoder() -> Any:
    encoder = transformers.ViTConfig(**{**_SMALL, "image_size": 16, "patch_size": 8})
    decoder = transformers.BertConfig(**_SMALL, is_decoder=True, add_cross_attention=True)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    return transformers.VisionEncoderDecoderModel(config)


def test_a_runtime_that_loads_parts_gets_no_single_file(tmp_path: Path) -> None:
    name = saved(_vision_encoder_decoder(), tmp_path / "model")
    with pytest.raises(InvalidArgumentError, match="loads in parts that are not made here"):
        export_model(name, tmp_path / "out", FolderOptions(runtime="transformers.js"))


def test_what_genai_is_not_told_is_told_to_the_user(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its configuration has no beams here, and its cache is not made anew where the frequencies change."""
    rotation = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    config = transformers.Phi3Config(
        **_SMALL,
        max_position_embeddings=64,
        original_max_position_embeddings=20,
        rope_parameters={**rotation, "original_max_position_embeddings": 20},
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = transformers.Phi3ForCausalLM(config)
    model.generation_config.update(num_beams=3, min_length=5)
    name = saved(model, tmp_path / "model")
    export_model(name, tmp_path / "out", FolderOptions(runtime="genai"))
    assert "num_beams of generation_config.json are not in genai_config.json" in caplog.text
    assert "beyond 20 tokens" in caplog.text
    told = json.loads((tmp_path / "out" / "genai_config.json").read_text())
    assert told["search"]["min_length"] == 5


def test_a_class_that_sees_pictures_is_exported_with_them() -> None:
    """transformers lists it under texts alone as well."""
    config = transformers.Gemma3Config(architectures=["Gemma3ForConditionalGeneration"])
    task, owner = class_of_checkpoint("a folder", config, None)
    assert (task.name, owner) == ("image-text-to-text", transformers.Gemma3ForConditionalGeneration)
