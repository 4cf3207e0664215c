"""Caches that onnxruntime-genai keeps in one buffer: what is read of it, and what stops the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime_genai
import pytest
import torch
import transformers

from exportguard import ExportOptions, export_model, load
from exportguard.command_line import main
from exportguard.ship import FolderOptions
from exportguard.ship.decoder import decoder_to_onnx, plain_cache

WINDOW = 6
SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 120, "max_position_embeddings": 256,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": WINDOW},
    "gemma2": {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]},  # with a softcap
    "gemma3_text": {"sliding_window": WINDOW, "layer_types": ["full_attention", "sliding_attention"]},
    "qwen3": {},
    "granite": {"attention_multiplier": 0.3},
}


def model_of(name: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **{**SMALL, **MODELS.get(name, {}), **changes})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)  # sharp enough that a key more or less is seen
    return model


def file_of(model: Any, path: Path, positions: int | None = None) -> ort.InferenceSession:
    options = ExportOptions(positions=positions)
    decoder_to_onnx(model, plain_cache(model), opset=None, options=options, optimize="onnxruntime-genai").save(path)
    written = load(path)
    assert written.keeps_caches_in_one_buffer
    rotations = [node.op_type for node in onnx.load(path).graph.node if node.op_type == "RotaryEmbedding"]
    assert len(rotations) == (0 if positions else 2 * model.config.num_hidden_layers)
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


class Buffers:
    """A cache of that capacity, of which the file is told what it holds."""

    def __init__(self, session: ort.InferenceSession, model: Any, batch: int, capacity: int) -> None:
        self.session = session
        size = (batch, model.config.num_key_value_heads, capacity, model.config.head_dim)
        self.names = [one.name for one in session.get_inputs() if one.name.startswith("past_key_values")]
        dtype = torch.zeros(0, dtype=model.dtype).numpy().dtype
        self.values = [ort.OrtValue.ortvalue_from_numpy(np.zeros(size, dtype)) for _ in self.names]
        self.held = 0

    def run(
        self, ids: torch.Tensor, mask: torch.Tensor | None = None, positions: torch.Tensor | None = None
    ) -> torch.Tensor:
        batch, new = ids.shape
        total = self.held + new
        given = {
            "input_ids": ids,
            "attention_mask": torch.ones(batch, total, dtype=torch.int64) if mask is None else mask,
            "position_ids": torch.arange(self.held, total).expand(batch, new).contiguous()
            if positions is None
            else positions,
        }
        binding = self.session.io_binding()
        binding.bind_output("logits")
        for name, value in given.items():
            binding.bind_cpu_input(name, value.numpy())
        for name, value in zip(self.names, self.values, strict=True):
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(name.replace("past_key_values", "present"), value)
        self.session.run_with_iobinding(binding)
        self.held = total
        return torch.from_numpy(binding.copy_outputs_to_cpu()[0])


@pytest.mark.parametrize(("batch", "positions"), [(1, None), (1, 40), (2, 256)])
@pytest.mark.parametrize("name", MODELS)
def test_a_buffer_is_read_as_far_as_it_is_filled(name: str, batch: int, positions: int | None, tmp_path: Path) -> None:
    """A prompt beyond the window, tokens one by one, and for one text more tokens at once behind them."""
    model = model_of(name)
    ids = torch.randint(3, 120, (batch, 24), generator=torch.Generator().manual_seed(1))
    buffers = Buffers(file_of(model, tmp_path / "model.onnx", positions), model, batch, capacity=40)
    parts = [10, 11, 12, 13, *([19, 24] if batch == 1 else [14, 15])]
    begin = 0
    for end in parts:
        with torch.no_grad():
            expected = model(ids[:, :end]).logits[:, begin:end]
        torch.testing.assert_close(buffers.run(ids[:, begin:end]), expected, rtol=2e-4, atol=2e-4)
        begin = end


@pytest.mark.parametrize("positions", [None, 256])
def test_half_precision(positions: int | None, tmp_path: Path) -> None:
    model = model_of("llama").half()
    ids = torch.randint(3, 120, (1, 12), generator=torch.Generator().manual_seed(1))
    buffers = Buffers(file_of(model, tmp_path / "model.onnx", positions), model, 1, capacity=20)
    got = torch.cat([buffers.run(ids[:, :9]), buffers.run(ids[:, 9:])], 1)
    with torch.no_grad():
        exact = model.double()(ids).logits
        own = model.half()(ids).logits
    assert (got - exact).abs().max() <= 2 * (own - exact).abs().max() + 1e-2


def test_padding_stops_the_file(tmp_path: Path) -> None:
    model = model_of("llama")
    buffers = Buffers(file_of(model, tmp_path / "model.onnx"), model, 2, capacity=20)
    mask = torch.ones(2, 5, dtype=torch.int64)
    mask[1, :2] = 0
    with pytest.raises(Exception, match="attention_mask must be all ones: this file takes no padding"):
        buffers.run(torch.full((2, 5), 7), mask)


@pytest.mark.parametrize("wrong", [[1, 2, 3], [0, 1, 1], [0, 2, 1], [0, 1, -1], [0, 1, 300]])
def test_other_positions_stop_a_file_with_tables_of_rotations(wrong: list[int], tmp_path: Path) -> None:
    """The kernel reads no more than the first of them where nothing is kept."""
    model = model_of("llama")
    session = file_of(model, tmp_path / "model.onnx", positions=256)
    ids = torch.full((2, 3), 7)
    Buffers(session, model, 2, capacity=20).run(ids)
    with pytest.raises(Exception, match="position_ids must be 0, 1, 2, … from the first token kept"):
        Buffers(session, model, 2, capacity=20).run(ids, positions=torch.tensor([[0, 1, 2], wrong]))


def test_the_command_line_is_told_how_many_positions_there_are(tmp_path: Path) -> None:
    model = model_of("llama")
    decoder_to_onnx(model, plain_cache(model), opset=None).save(tmp_path / "in.onnx")
    options = ["--for", "onnxruntime-genai", "-v", "0"]
    made = {}
    for further in ([], ["--positions", "64"]):
        command = ["optimize", str(tmp_path / "in.onnx"), "-o", str(tmp_path / "out.onnx"), *options, *further]
        assert main(command) == 0
        file = onnx.load(tmp_path / "out.onnx")
        made[bool(further)] = {one.name: list(one.dims) for one in file.graph.initializer if "_cache" in one.name}
    assert made == {False: {}, True: {"cos_cache": [64, 8], "sin_cache": [64, 8]}}
    assert main([*command[:-1], "0"]) == 2


def test_a_text_beyond_the_tables_stops_the_file(tmp_path: Path) -> None:
    model = model_of("llama")
    buffers = Buffers(file_of(model, tmp_path / "model.onnx", positions=8), model, 1, capacity=20)
    buffers.run(torch.full((1, 8), 7))
    with pytest.raises(Exception, match="cos_cache dimension 0"):
        buffers.run(torch.full((1, 1), 7))


def test_rotations_of_a_part_of_each_head_and_of_neighbours(tmp_path: Path) -> None:
    """GPT-NeoX turns a quarter of 64 numbers, Cohere numbers and their neighbours."""
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64}
    for name in ("phi", "stablelm", "cohere", "glm"):
        model = model_of(name, **sizes, partial_rotary_factor=0.5)
        ids = torch.randint(3, 120, (1, 12), generator=torch.Generator().manual_seed(1))
        buffers = Buffers(file_of(model, tmp_path / f"{name}.onnx", positions=64), model, 1, capacity=20)
        got = torch.cat([buffers.run(part) for part in ids.split([9, 1, 2], dim=1)], 1)
        with torch.no_grad():
            torch.testing.assert_close(got, model(ids).logits, rtol=5e-4, atol=5e-4)


def test_a_place_of_the_cache_that_was_never_filled_stops_the_file(tmp_path: Path) -> None:
    model = model_of("llama")
    buffers = Buffers(file_of(model, tmp_path / "model.onnx"), model, 1, capacity=20)
    buffers.run(torch.full((1, 5), 7))
    buffers.held += 1  # as if a token had been run that was not
    with pytest.raises(Exception, match="rewind by the last token and append it again"):
        buffers.run(torch.full((1, 3), 7))


@pytest.mark.parametrize("place", [0, 4, 6])
def test_a_token_whose_embedding_is_zero_is_no_empty_place(place: int, tmp_path: Path) -> None:
    """That of padding is; its keys and values in the first layer are zero, and as the first token in all."""
    model = model_of("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[0] = 0
    ids = torch.randint(3, 120, (1, 8), generator=torch.Generator().manual_seed(1))
    ids[0, place] = 0
    buffers = Buffers(file_of(model, tmp_path / "model.onnx"), model, 1, capacity=20)
    got = torch.cat([buffers.run(part) for part in ids.split([place + 1, *[1] * (7 - place)], dim=1)], 1)
    with torch.no_grad():
        torch.testing.assert_close(got, model(ids).logits, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_tokens_appended_in_the_runtime(name: str, tmp_path: Path) -> None:
    """onnxruntime-genai 0.18 does not run the last token that it generated before others are appended."""
    model = model_of(name)
    model.save_pretrained(tmp_path / "source")
    assert export_model(str(tmp_path / "source"), tmp_path / "out", FolderOptions(runtime="genai")).runtime_agrees
    runtime = onnxruntime_genai.Model(str(tmp_path / "out"))
    settings = onnxruntime_genai.GeneratorParams(runtime)
    settings.set_search_options(max_length=64, min_length=64, do_sample=False)
    generator = onnxruntime_genai.Generator(runtime, settings)
    texts = torch.randint(3, 120, (2, 9), generator=torch.Generator().manual_seed(2)).to(torch.int32).numpy()
    generator.append_tokens(texts[:1])
    for _ in range(4):
        generator.generate_next_token()
    generated = [int(token) for token in generator.get_sequence(0)]
    generator.rewind_to(len(generated) - 1)
    generator.append_tokens(np.concatenate([np.array([generated[-1:]], np.int32), texts[1:]], axis=1))
    for _ in range(4):
        generator.generate_next_token()
    before = torch.tensor([[*generated, *texts[1].tolist()]])
    expected = model.generate(before, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    assert [int(token) for token in generator.get_sequence(0)] == expected[0].tolist()


@pytest.mark.parametrize("name", ["bloom", "gpt_neo", "gemma3n_text", "llama"])
def test_the_configuration_says_whether_there_is_a_buffer(name: str, tmp_path: Path) -> None:
    """What hides keys in another way, has heads of another size, or reads the keys of other layers keeps copies."""
    source: str | Path = name
    if name == "llama":
        source = tmp_path / "source"
        model_of("llama", head_dim=20).save_pretrained(source)
    result = export_model(str(source), tmp_path / "out", FolderOptions(runtime="genai"))
    search = json.loads((tmp_path / "out" / "genai_config.json").read_text())["search"]
    assert search["past_present_share_buffer"] is False
    assert result.runtime_agrees
