"""Models that tiny ones do not stand for: deep ones in half precision, and pairs joined by a configuration alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from exportguard.models import BuildOptions
from exportguard.ship import FolderOptions, export_model
from exportguard.ship.as_exact import exact_or_as_it_was
from exportguard.validation.discrepancies import compare_outputs

_OF_BERT = {
    "vocab_size": 60,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def deep_llama(folder: Path) -> Path:
    """One whose logits are as large as those of trained models."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=500,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=16,
        num_attention_heads=4,
        initializer_range=0.15,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_a_deep_decoder_in_half_precision_is_as_exact_as_the_model(tmp_path: Path) -> None:
    """Rounding adds up from layer to layer, beyond the tolerance of the dtype, in the file as in eager mode."""
    model = deep_llama(tmp_path / "model")
    options = FolderOptions(build=BuildOptions(dtype=torch.float16))
    result = export_model(str(model), tmp_path / "out", options)
    assert any(one.tolerance is not None and one.tolerance.relative == 0.0 for one in result.comparisons)
    assert all(one.agrees for one in result.comparisons)


@pytest.mark.parametrize("shift", [0.0, 1e-3])
def test_what_is_further_from_the_exact_values_than_the_model_does_not_agree(shift: float) -> None:
    exact = torch.linspace(-3, 3, 50, dtype=torch.float64)
    own, got = exact.float() + 1e-4, exact.float() - 1e-4 + shift
    compared = compare_outputs(["logits"], [own], [got])
    assert not compared[0].agrees
    (judged,) = exact_or_as_it_was(compared, [own], [got], lambda: [exact])
    assert judged.agrees is (shift == 0.0)


def test_two_models_of_texts_in_one_are_exported(tmp_path: Path) -> None:
    encoder = transformers.BertConfig(**_OF_BERT)
    decoder = transformers.BertConfig(**_OF_BERT, is_decoder=True, add_cross_attention=True)
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    transformers.EncoderDecoderModel(config).save_pretrained(tmp_path / "model")
    result = export_model(str(tmp_path / "model"), tmp_path / "out")
    assert result.comparisons
    assert all(one.agrees for one in result.comparisons)


def test_a_further_mask_of_an_encoder_goes_with_longer_texts(tmp_path: Path) -> None:
    config = transformers.LEDConfig(
        vocab_size=60,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        attention_window=4,
        max_encoder_position_embeddings=64,
        max_decoder_position_embeddings=64,
    )
    transformers.LEDForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    result = export_model(str(tmp_path / "model"), tmp_path / "out")
    assert result.comparisons
    assert all(one.agrees for one in result.comparisons)
