"""Weights that stay on disk: the same model as transformers loads, and files that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from exportguard.errors import FileError
from exportguard.models import BuildOptions, build_model, mapped

COMMON: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 31,
}
MODELS: dict[str, Callable[[], Any]] = {
    "a decoder": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON)),
    "tied weights": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON, tie_word_embeddings=True)),
    "learned positions": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=31, n_positions=32)
    ),
    "an encoder": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**COMMON)),
    "batch norms": lambda: transformers.ResNetForImageClassification(
        transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=3)
    ),
    "two parts": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, vocab_size=31)
    ),
}


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "MAPPED_FROM", 0)


def saved(name: str, folder: Path, **options: Any) -> Path:
    torch.manual_seed(0)
    MODELS[name]().save_pretrained(folder, **options)
    return folder


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_mapped_model_is_the_one_that_transformers_loads(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    folder = saved(name, tmp_path / "model", max_shard_size="5KB")
    case = build_model(str(folder), BuildOptions(dtype=dtype))
    expected = type(case.model).from_pretrained(folder, dtype=dtype).eval()
    weights, wanted = case.model.state_dict(), expected.state_dict()
    assert list(weights) == list(wanted)
    for key, value in wanted.items():
        assert torch.equal(weights[key], value), key
        assert weights[key].dtype == value.dtype
    with torch.no_grad():
        outputs = [model(**case.inputs(case.task.sizes))[0] for model in (case.model, expected)]
    assert torch.equal(*outputs)


@pytest.mark.usefixtures("everything_is_large")
def test_weights_of_the_same_dtype_are_not_copied(tmp_path: Path) -> None:
    folder = saved("a decoder", tmp_path / "model")
    model: Any = build_model(str(folder)).model
    pointers = {value.untyped_storage().data_ptr() for value in model.parameters()}
    assert len(pointers) == 1  # the file


@pytest.mark.usefixtures("everything_is_large")
def test_weights_that_are_missing_are_told_as_ever(tmp_path: Path) -> None:
    folder = saved("a decoder", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(Exception, match="9 are missing"):
        build_model(str(folder))


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    folder = saved("a decoder", tmp_path / "model")
    file = folder / "model.safetensors"
    content = file.read_bytes()
    for length, reason in ((4, "cut short"), (200, "cut short"), (len(content) - 8, "ends at byte")):
        file.write_bytes(content[:length])
        with pytest.raises(FileError, match=reason):
            mapped.stored_tensors(folder)
    file.write_bytes(b"\x10" + bytes(7) + b"not JSON at all.")
    with pytest.raises(FileError, match="cannot read"):
        mapped.stored_tensors(folder)


def test_a_folder_without_safetensors_has_none(tmp_path: Path) -> None:
    assert mapped.stored_tensors(tmp_path) == {}
