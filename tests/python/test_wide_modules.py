"""Modules that stay in float32 in a model of half precision."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
import transformers

import exportguard
from exportguard.errors import InvalidArgumentError
from exportguard.models import BuildOptions, build_model, mapped
from exportguard.models.wide_modules import narrow
from exportguard.ship import FolderOptions, export_model

HALF = torch.float16


class Sums(torch.nn.Module):
    """The sum of squares of what a model of half precision can hold is more than float16 can."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 64)
        self.squares = Squares()
        self.last = torch.nn.Linear(64, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.squares(self.first(x)))


class Squares(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.square().sum(-1, keepdim=True).sqrt()


def test_a_sum_beyond_float16_is_right_where_its_module_is_kept() -> None:
    torch.manual_seed(0)
    wide, x = Sums().eval(), torch.full((3, 4), 300.0)
    narrowed, kept = Sums().eval(), Sums().eval()
    for model in (narrowed, kept):
        model.load_state_dict(wide.state_dict())
    narrow(narrowed, HALF, ())
    narrow(kept, HALF, ("squares",))
    overflowed, right = narrowed(x.half()), kept(x.half())
    assert torch.equal(overflowed, narrowed.last.bias.expand(3, 2))  # the quotient by an infinity
    assert right.dtype == HALF
    torch.testing.assert_close(right.float(), wide(x), rtol=2e-2, atol=2e-2)

    model = exportguard.to_onnx(kept, (x.half(),), dynamic_shapes=({0: "batch"},))
    for batch in (1, 5):
        given = torch.full((batch, 4), 300.0, dtype=HALF)
        (got,) = model.run({"x": given}).values()
        torch.testing.assert_close(got, kept(given), rtol=2e-3, atol=2e-3)


def test_an_exported_decoder_has_the_weights_that_are_kept_in_float32(tmp_path: Path) -> None:
    build = BuildOptions(dtype=HALF, keep_float32=("lm_head", "*.mlp"))
    result = export_model("llama", tmp_path / "out", FolderOptions(build=build, runtime="genai"))
    assert result.dtype == "float16"
    assert result.kept_float32[0] == "lm_head"
    assert {name.rpartition(".")[2] for name in result.kept_float32} == {"lm_head", "mlp"}
    assert all(one.agrees for one in result.comparisons)
    kinds = {tensor.name: tensor.data_type for tensor in onnx.load(tmp_path / "out" / "model.onnx").graph.initializer}
    wide = {name for name, kind in kinds.items() if kind == onnx.TensorProto.FLOAT and ".weight" in name}
    assert wide
    assert all("mlp" in name or "lm_head" in name for name in wide)
    assert any("q_proj" in name for name, kind in kinds.items() if kind == onnx.TensorProto.FLOAT16)


@pytest.mark.parametrize("mapped_from", [0, mapped.MAPPED_FROM], ids=["mapped", "loaded"])
def test_what_is_kept_has_the_numbers_of_the_checkpoint(
    mapped_from: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "MAPPED_FROM", mapped_from)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, vocab_size=31
    )
    saved = transformers.LlamaForCausalLM(config)
    saved.save_pretrained(tmp_path)
    case = build_model(str(tmp_path), BuildOptions(dtype=HALF, keep_float32=("lm_head",)))
    weights, wanted = case.model.state_dict(), saved.state_dict()
    assert torch.equal(weights["lm_head.weight"], wanted["lm_head.weight"])
    assert torch.equal(weights["model.norm.weight"], wanted["model.norm.weight"].half())
    ids = torch.randint(0, 31, (2, 3))
    torch.testing.assert_close(case.model(ids).logits.float(), saved.eval()(ids).logits, rtol=2e-2, atol=2e-2)


def _tied() -> torch.nn.Module:
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, vocab_size=31,
        tie_word_embeddings=True,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def test_a_weight_that_two_modules_share_is_kept_for_both_or_for_none() -> None:
    with pytest.raises(InvalidArgumentError, match=r"lm_head.weight is the same weight as model.embed_tokens"):
        narrow(_tied(), HALF, ("lm_head",))
    model = _tied()
    narrow(model, HALF, ("lm_head", "model.embed_tokens"))
    assert model(torch.ones(1, 2, dtype=torch.int64)).logits.dtype == HALF


def test_a_module_that_takes_a_cache_is_refused() -> None:
    model = _tied()
    narrow(model, HALF, ("model.layers.0",))
    with pytest.raises(InvalidArgumentError, match=r"model.layers.0 .* takes a DynamicCache"):
        model(torch.ones(1, 2, dtype=torch.int64), use_cache=True)


def test_a_name_that_no_module_has_is_refused_with_those_that_are_like_it() -> None:
    with pytest.raises(InvalidArgumentError, match=r"no module of LlamaForCausalLM is called 'lmhead'.*lm_head"):
        narrow(_tied(), HALF, ("lmhead",))


def test_only_models_of_half_precision_keep_something() -> None:
    with pytest.raises(InvalidArgumentError, match="keep_float32 is for models of half precision, and dtype is float3"):
        BuildOptions(keep_float32=("lm_head",))


def test_what_a_function_makes_is_not_made_otherwise(tmp_path: Path) -> None:
    program = tmp_path / "own.py"
    program.write_text("import torch\ndef make():\n    return torch.nn.Linear(2, 2), (torch.ones(2, 2),)\n")
    options = FolderOptions(build=BuildOptions(dtype=HALF))
    with pytest.raises(InvalidArgumentError, match=r"makes the model itself, so dtype would change nothing"):
        export_model(f"{program}:make", tmp_path / "out", options)
