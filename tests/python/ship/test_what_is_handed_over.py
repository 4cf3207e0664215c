"""What the tokenizer and the processor of a model hand over is an input of its file, and changes what it computes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from small_pictures import save_detr

from exportguard.models import ModelCase
from exportguard.models.catalogue import build_model
from exportguard.models.natural_inputs.handed_over import _made_by_tokenizer
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship import FolderOptions, export_model
from exportguard.ship.layout import MODEL_FILE
from exportguard.ship.left_out import left_out

_TEXT: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def _layoutlm(folder: Path) -> None:
    config = transformers.LayoutLMConfig(**_TEXT)
    transformers.LayoutLMForTokenClassification(config).save_pretrained(folder)


def _layoutlmv3(folder: Path) -> None:
    sizes = {"coordinate_size": 3, "shape_size": 2, "input_size": 32, "patch_size": 16, "rel_pos_bins": 8}
    config = transformers.LayoutLMv3Config(**_TEXT, **sizes, max_rel_pos=16, rel_2d_pos_bins=8, max_rel_2d_pos=16)
    transformers.LayoutLMv3ForTokenClassification(config).save_pretrained(folder)


def _markuplm(folder: Path) -> None:
    config = transformers.MarkupLMConfig(**_TEXT, max_depth=4, xpath_unit_hidden_size=4)
    transformers.MarkupLMForTokenClassification(config).save_pretrained(folder)


def _tapas(folder: Path) -> None:
    config = transformers.TapasConfig(**_TEXT, type_vocab_sizes=[3, 8, 8, 2, 8, 8, 10])
    transformers.TapasForSequenceClassification(config).save_pretrained(folder)


def _wav2vec2(folder: Path) -> None:
    config = transformers.Wav2Vec2Config(
        **_TEXT, conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2,
        feat_extract_norm="layer", num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    transformers.Wav2Vec2ForCTC(config).save_pretrained(folder)


def _masked_wav2vec2(folder: Path) -> None:
    _wav2vec2(folder)
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (_layoutlm, ["bbox"]),
        (_layoutlmv3, ["bbox", "pixel_values"]),
        (_markuplm, ["xpath_tags_seq", "xpath_subs_seq"]),
        (_tapas, ["token_type_ids"]),
        (save_detr, ["pixel_mask"]),
        (_masked_wav2vec2, ["attention_mask"]),
    ],
)
def test_a_file_has_an_input_for_it_and_reads_it(
    make: Callable[[Path], object], names: list[str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    make(tmp_path / "model")
    result = export_model(str(tmp_path / "model"), tmp_path / "out")
    assert set(names) <= set(result.inputs)
    assert not result.left_out
    case = build_model(str(tmp_path / "model"))
    inputs = case.inputs(case.task.sizes)
    session = OrtSession(tmp_path / "out" / MODEL_FILE)
    plain = session.run(inputs)[0]
    for name in names:
        given = inputs[name]
        other = torch.randn_like(given) if given.is_floating_point() else torch.ones_like(given)
        assert not torch.allclose(session.run({**inputs, name: other})[0], plain), name


def test_a_recording_has_no_mask_where_its_processor_makes_none(tmp_path: Path) -> None:
    _wav2vec2(tmp_path / "model")
    result = export_model(str(tmp_path / "model"), tmp_path / "out")
    assert result.inputs == ["input_values"]
    assert not result.left_out


def test_files_in_the_working_folder_are_no_models_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"model_input_names": ["input_ids", "token_type_ids"]}')
    monkeypatch.chdir(tmp_path)
    told = list(_made_by_tokenizer(transformers.GPT2Config()))
    assert told == ["input_ids"]


def test_a_runtime_whose_classes_do_not_give_it_has_a_file_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_detr(tmp_path / "model")
    result = export_model(str(tmp_path / "model"), tmp_path / "out", FolderOptions(runtime="transformers.js"))
    assert (result.inputs, result.left_out) == (["pixel_values"], ["pixel_mask"])
    assert re.search("no input for pixel_mask", caplog.text)


class _Ignores(torch.nn.Module):
    """Takes what a tokenizer of BERT hands over, and reads none of it."""

    def __init__(self) -> None:
        super().__init__()
        self.config = transformers.BertConfig(**_TEXT)
        self.table = torch.nn.Embedding(60, 4)

    def forward(self, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None = None) -> torch.Tensor:
        return self.table(input_ids)  # type: ignore[no-any-return]


def test_what_changes_nothing_is_neither_given_nor_told() -> None:
    case = build_model("deberta")
    ignoring = ModelCase(name="ignores", model=_Ignores(), task=case.task)
    inputs = {"input_ids": torch.zeros(2, 3, dtype=torch.int64)}
    assert "token_type_ids" not in case.inputs(case.task.sizes)
    assert not left_out(ignoring.model, inputs)
