"""Encoders and decoders in two files, as the loops of runtimes call them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from node_runtime import needs_node, run_in_node

from exportguard.errors import InvalidArgumentError
from exportguard.models import BuildOptions, ModelCase, build_model
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship import FolderOptions, export_model
from exportguard.ship.encoder_decoder import DECODER_FILE, ENCODER_FILE, Source, source_of
from exportguard.ship.quantization import QUANTIZATIONS
from exportguard.ship.recorded import validate_export

MODELS = {"t5": "text2text-generation", "bart": "text2text-generation", "whisper": "automatic-speech-recognition"}


@pytest.fixture(scope="module", params=MODELS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("exports") / request.param
    result = export_model(request.param, folder, options(request.param, "optimum"))
    assert result.files == [ENCODER_FILE, DECODER_FILE]
    assert [one.agrees for one in result.comparisons] == [True] * 6
    return request.param, folder


def options(name: str, runtime: Any, **others: Any) -> FolderOptions:
    return FolderOptions(runtime=runtime, build=BuildOptions(task=MODELS[name]), **others)


def case_of(name: str) -> tuple[ModelCase, Source]:
    case = build_model(name, BuildOptions(task=MODELS[name]))
    return case, source_of(case)


def test_loops_find_the_names_that_they_count_on(exported: tuple[str, Path]) -> None:
    """In the order in which optimum pairs them with what a step returned."""
    _, folder = exported
    session = OrtSession(folder / DECODER_FILE)
    kept = [
        f"{layer}.{part}.{kind}" for layer in range(2) for part in ("decoder", "encoder") for kind in ("key", "value")
    ]
    assert [name for name in session.input_names if "past" in name] == [f"past_key_values.{name}" for name in kept]
    assert session.output_names == ["logits", *(f"present.{name}" for name in kept)]
    assert OrtSession(folder / ENCODER_FILE).output_names[0] == "last_hidden_state"
    assert validate_export(folder).ok


def test_a_later_step_reads_what_was_kept_and_not_the_states(exported: tuple[str, Path]) -> None:
    name, folder = exported
    _, source = case_of(name)
    call = next(call for call in torch.load(folder / "examples.pt") if call["inputs"].get("use_cache_branch", False))
    session = OrtSession(folder / DECODER_FILE)
    others = {**call["inputs"], "encoder_hidden_states": torch.zeros_like(call["inputs"]["encoder_hidden_states"])}
    assert torch.equal(session.run(others)[0], call["outputs"]["logits"])
    fresh = session.run({**others, "use_cache_branch": torch.tensor([False])})[0]
    assert not torch.allclose(fresh, call["outputs"]["logits"])
    assert source.is_masked == (name != "whisper")


def test_each_weight_is_there_once(exported: tuple[str, Path]) -> None:
    """The first and the later steps share a graph: the files are not larger than the model."""
    name, folder = exported
    case, _ = case_of(name)
    weights = sum(value.numel() * value.element_size() for value in case.model.parameters())
    shared = sum(
        value.numel() * value.element_size() for key, value in case.model.named_parameters() if "shared" in key
    )
    written = sum(path.stat().st_size for path in folder.glob("*.onnx*"))
    assert written < weights + 2 * shared + 150_000  # and the nodes


def test_both_files_are_quantized(tmp_path: Path) -> None:
    result = export_model("t5", tmp_path / "out", options("t5", "onnxruntime", quantize=QUANTIZATIONS["int8"]))
    assert result.quantization is not None
    assert result.quantization.quantized == result.quantization.products
    assert 0 < result.agreement["divergence"] < 0.01
    assert validate_export(tmp_path / "out").ok


def test_states_that_are_no_keys_and_values_are_refused_or_written_as_the_model_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(case: ModelCase) -> Source:
        raise InvalidArgumentError("kept otherwise")

    monkeypatch.setattr("exportguard.ship.writers.source_of", refuses)
    with pytest.raises(InvalidArgumentError, match="kept otherwise"):
        export_model("t5", tmp_path / "out", options("t5", "optimum"))
    assert export_model("t5", tmp_path / "out", options("t5", "onnxruntime")).files == ["model.onnx"]


def test_states_come_in_the_class_of_the_encoder(tmp_path: Path) -> None:
    """The decoder of Moonshine asks it for a mask; recordings may be of any length."""
    task = BuildOptions(task="automatic-speech-recognition")
    result = export_model("moonshine", tmp_path / "out", FolderOptions(build=task))
    assert result.files == [ENCODER_FILE, DECODER_FILE]
    model: Any = build_model("moonshine", task).model
    recording = torch.randn(1, 7000)
    with torch.no_grad():
        expected = model.get_encoder()(recording).last_hidden_state
    (states, *_) = OrtSession(tmp_path / "out" / ENCODER_FILE).run({"input_values": recording})
    torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-5)


JAVASCRIPT = """
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const [packages, folder, auto] = process.argv.slice(2);
const entry = createRequire(packages + "/package.json").resolve("@huggingface/transformers");
const transformers = await import(pathToFileURL(entry));
transformers.env.allowRemoteModels = false;
transformers.env.localModelPath = folder;
const given = {};
for (const [name, { type, dims, values }] of Object.entries(JSON.parse(readFileSync(folder + "inputs.json")))) {
  const data = type === "int64" ? BigInt64Array.from(values, BigInt) : Float32Array.from(values);
  given[name] = new transformers.Tensor(type, data, dims);
}
const { input_ids, input_features, ...others } = given;
const model = await transformers[auto].from_pretrained("model");
const inputs = input_ids ?? input_features;
const tokens = await model.generate({ inputs, ...others, max_new_tokens: 6, min_new_tokens: 6, do_sample: false });
console.log(JSON.stringify(tokens.tolist().map((row) => row.map(Number))));
"""
LOADERS = {"whisper": "AutoModelForSpeechSeq2Seq"}


@needs_node
@pytest.mark.parametrize("name", MODELS)
def test_transformers_js_writes_what_the_model_writes(name: str, tmp_path: Path) -> None:
    export_model(name, tmp_path / "model", options(name, "transformers.js"))
    case, source = case_of(name)
    inputs = {key: value[:1] for key, value in source.inputs.items()}
    told = {
        key: {"type": str(value.dtype)[6:], "dims": list(value.shape), "values": value.flatten().tolist()}
        for key, value in inputs.items()
    }
    (tmp_path / "inputs.json").write_text(json.dumps(told))
    tokens = run_in_node(JAVASCRIPT, tmp_path, LOADERS.get(name, "AutoModelForSeq2SeqLM"))
    model: Any = case.model
    expected = model.generate(**inputs, max_new_tokens=6, min_new_tokens=6, do_sample=False, num_beams=1)
    assert tokens[0][-expected.shape[1] :] == expected[0].tolist()
