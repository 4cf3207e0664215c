"""Folders that runtimes load: what is in them, that they are whole, and what is refused."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from node_runtime import needs_node, run_in_node

import exportguard
from exportguard.command_line import main
from exportguard.errors import ExportGuardError, FileError, InvalidArgumentError
from exportguard.models import BuildOptions, build_model
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship import FolderOptions, export_model
from exportguard.ship.decoder import positions
from exportguard.ship.generation import compare_generation
from exportguard.ship.layout import arrange_for_transformers_js
from exportguard.ship.outcome import Runtime
from exportguard.ship.quantization import QUANTIZATIONS
from exportguard.ship.recorded import validate_export
from exportguard.ship.sessions import session_of
from exportguard.ship.staging import REPORT, staged_folder

DECODERS = ("llama", "mistral", "gemma3", "gpt2")


@pytest.mark.parametrize("runtime", ["genai", "onnxruntime"])
@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_generates_what_the_model_generates(name: str, runtime: Runtime, tmp_path: Path) -> None:
    """For onnxruntime also from a text that is padded."""
    result = export_model(name, tmp_path / "out", FolderOptions(runtime=runtime))
    assert len(result.comparisons) == 6
    assert all(one.agrees for one in result.comparisons)
    assert result.runtime_agrees is (True if runtime == "genai" else None)


def test_a_folder_has_the_model_its_configurations_and_a_report(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_model("qwen3", folder, FolderOptions(runtime="genai"))
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "examples.pt",
        REPORT,
        "genai_config.json",
        "generation_config.json",
        "model.onnx",
    ]
    config = json.loads((folder / "genai_config.json").read_text())["model"]
    assert config["decoder"]["inputs"]["position_ids"] == "position_ids"
    session = OrtSession(folder / "model.onnx")
    named = config["decoder"]["inputs"]["past_key_names"] % (config["decoder"]["num_hidden_layers"] - 1)
    assert named in session.input_names
    assert json.loads((folder / REPORT).read_text())["versions"]["torch"] == torch.__version__


def test_a_small_model_that_generates_is_exported_in_one_thread_which_loads_its_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that wait for the next product spin: on a machine with other work that is most of an export's time."""
    loaded: list[Any] = []
    monkeypatch.setattr(
        "exportguard.ship.generation.session_of", lambda file: loaded.append(session_of(file)) or loaded[-1]
    )
    monkeypatch.setattr("exportguard.ship.recorded.session_of", lambda file: pytest.fail("what was compared is kept"))
    before, threads = torch.get_num_threads(), dict[str, int]()
    torch.set_num_threads(2)
    try:
        export_model("llama", tmp_path / "out", progress=lambda step: threads.update({step: torch.get_num_threads()}))
        assert torch.get_num_threads() == 2, "as before"
    finally:
        torch.set_num_threads(before)
    assert threads["generating with transformers"] == threads["exporting and converting"] == 1
    (session,) = loaded
    settings = session._session.get_session_options()
    assert settings.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    monkeypatch.undo()
    assert validate_export(tmp_path / "out").ok


def test_a_model_of_another_task_is_compared_and_written(tmp_path: Path) -> None:
    result = export_model("bert", tmp_path / "out", FolderOptions(build=BuildOptions(task="fill-mask")))
    assert result.task == "fill-mask"
    assert result.inputs[0] == "input_ids"
    assert all(one.agrees for one in result.comparisons)


def test_a_model_with_states_is_written_as_its_own_code_calls_it(tmp_path: Path) -> None:
    result = export_model("mamba", tmp_path / "out")
    assert any(name.startswith("past_key_values.") for name in result.inputs)
    assert all(one.agrees for one in result.comparisons)


def test_a_folder_with_a_tokenizer_keeps_it(tmp_path: Path) -> None:
    source = tmp_path / "source"
    _small_checkpoint(source)
    export_model(str(source), tmp_path / "out", FolderOptions(runtime="genai"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("b a").input_ids == [4, 3]


def test_what_a_generation_configuration_says_is_told_and_does_not_change_the_proof(tmp_path: Path) -> None:
    """Penalties make another text than the one that is compared; 0 is a value of its own, and not the default."""
    source = tmp_path / "source"
    _small_checkpoint(source)
    own = {"eos_token_id": [1, 4], "do_sample": True, "top_k": 0, "repetition_penalty": 0.5, "no_repeat_ngram_size": 2}
    (source / "generation_config.json").write_text(json.dumps(own))
    result = export_model(str(source), tmp_path / "out", FolderOptions(runtime="genai"))
    assert result.runtime_agrees is True
    told = json.loads((tmp_path / "out" / "genai_config.json").read_text())
    assert told["model"]["eos_token_id"] == [1, 4]
    assert {name: told["search"][name] for name in own if name != "eos_token_id"} == {
        name: value for name, value in own.items() if name != "eos_token_id"
    }


def test_a_folder_whose_configuration_cannot_be_read_is_told_as_that(tmp_path: Path) -> None:
    source = tmp_path / "source"
    _small_checkpoint(source)
    (source / "config.json").write_text("{")
    with pytest.raises(FileError, match=r"cannot read .*config.json: "):
        export_model(str(source), tmp_path / "out")


def test_a_processor_that_lacks_a_part_is_left_out(tmp_path: Path) -> None:
    """A feature extractor without the tokenizer that its processor wants."""
    source = tmp_path / "source"
    config = transformers.Wav2Vec2Config(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=8, conv_dim=(8,),
        conv_stride=(5,), conv_kernel=(10,), num_feat_extract_layers=1, num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    transformers.Wav2Vec2ForCTC(config).save_pretrained(source)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(source)
    export_model(str(source), tmp_path / "out")
    assert (tmp_path / "out" / "preprocessor_config.json").is_file()


@pytest.mark.parametrize("kind", ["safetensors", "bin", "sizes", "generation"])
def test_files_that_do_not_go_together_are_told_in_a_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    _small_checkpoint(source)
    weights = source / "model.safetensors"
    if kind == "bin":
        weights.unlink()
        (source / "pytorch_model.bin").write_bytes(b"no weights at all")
    elif kind == "safetensors":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif kind == "generation":
        (source / "generation_config.json").write_text('{"max_new_tokens": -1}')
    else:
        config = json.loads((source / "config.json").read_text())
        (source / "config.json").write_text(json.dumps({**config, "intermediate_size": 24}))
    assert main(["export", "-m", str(source), "-o", str(tmp_path / "out")]) in (1, 2)
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("Error: ")
    assert str(source) in told
    assert not (tmp_path / "out").exists()


def _small_checkpoint(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2, "a": 3, "b": 4}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>")
    tokenizer.save_pretrained(folder)
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=5, head_dim=8
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


REFUSED: dict[str, tuple[str, FolderOptions, str]] = {
    "states": ("mamba", FolderOptions(runtime="genai"), "MambaForCausalLM does not go on from keys and values alone"),
    "another task": ("bert", FolderOptions(runtime="genai"), "onnxruntime-genai folders are for text-generation"),
}


@pytest.mark.parametrize(("name", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_a_runtime_cannot_do_is_refused(name: str, options: FolderOptions, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        export_model(name, tmp_path / "out", options)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_generates_something_else_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any, **kwargs: Any) -> Any:
        prompts = kwargs.get("prompts", args[2])
        shifted = [logits + 1 for logits in prompts.logits]
        return compare_generation(args[0], args[1], type(prompts)(**{**vars(prompts), "logits": shifted}), *args[3:])

    monkeypatch.setattr("exportguard.ship.writers.compare_generation", wrong)
    with pytest.raises(ExportGuardError, match="does not generate what the model does: logits of step 0"):
        export_model("llama", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("weight", [torch.nan, 0.0], ids=["no numbers", "all equal"])
def test_a_model_whose_weights_are_broken_proves_nothing(weight: float, tmp_path: Path) -> None:
    source = tmp_path / "source"
    _small_checkpoint(source)
    model = transformers.LlamaForCausalLM.from_pretrained(source)
    torch.nn.init.constant_(model.lm_head.weight, weight)
    model.save_pretrained(source)
    with pytest.raises(ExportGuardError, match=r"logits of step 0: .* could tell right from wrong; see that"):
        export_model(str(source), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_padding_in_front_does_not_count_as_a_position() -> None:
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    assert positions(mask, 4).tolist() == [[0, 1, 2, 3], [0, 0, 0, 1]]
    assert positions(mask, 1).tolist() == [[3], [1]]


# ---------------------------------------------------------------------------------------------------- staging


def test_an_error_in_the_block_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with staged_folder(tmp_path / "out") as staging:
            (staging / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exchanges", [True, False], ids=["in one step", "in two"])
def test_an_earlier_export_is_replaced_and_another_folder_is_not(
    exchanges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        monkeypatch.setattr("exportguard.ship.staging._exchanged", lambda first, second: False)
    target = tmp_path / "out"
    for text in ("first", "second"):
        with staged_folder(target) as staging:
            (staging / REPORT).write_text(text)
    assert (target / REPORT).read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

    (target / REPORT).rename(target / "mine.txt")
    with pytest.raises(FileError, match="it is a folder with other files in it"), staged_folder(target):
        pass
    assert (target / "mine.txt").read_text() == "second"


def _write_for_ever(target: Path, pipe: int) -> None:
    for number in range(100_000):
        with staged_folder(target) as staging:
            (staging / "first").write_text(str(number))
            os.write(pipe, b".")
            (staging / "second").write_text(str(number))
            (staging / REPORT).write_text(str(number))


def _noted(folder: Path, *names: str) -> None:
    """What an export notes of the files that it wrote."""
    (folder / REPORT).write_text(json.dumps({"sha256": dict.fromkeys(names, "")}))


def test_an_earlier_export_with_files_of_others_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with staged_folder(target) as staging:
        (staging / "onnx").mkdir()
        (staging / "onnx" / "model.onnx").touch()
        _noted(staging, "onnx/model.onnx")
    (target / ".git").mkdir()
    (target / ".git" / "HEAD").write_text("main")
    with (
        pytest.raises(FileError, match=r"it has other files \(\.git/HEAD\), which would be lost"),
        staged_folder(target),
    ):
        pass
    shutil.rmtree(target / ".git")
    with staged_folder(target) as staging:
        _noted(staging)
    assert [path.name for path in target.iterdir()] == [REPORT]


def test_what_is_put_there_during_the_work_is_not_lost(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()

    def written() -> None:
        with staged_folder(target) as staging:
            _noted(staging)
            (target / "mine.txt").write_text("mine")

    with pytest.raises(FileError, match="it is a folder with other files in it"):
        written()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine.txt"]


def test_a_process_that_is_killed_leaves_a_whole_folder_or_none(tmp_path: Path) -> None:
    """At many moments of writing, replacing and renaming; the next one cleans up what was left."""
    target = tmp_path / "out"
    delays = random.Random(0)
    for _ in range(60):
        readable, writable = os.pipe()
        process = os.fork()
        if process == 0:
            _write_for_ever(target, writable)
        os.read(readable, 1)  # it works
        time.sleep(delays.uniform(0, 0.01))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(readable)
        os.close(writable)
        if target.exists():
            assert sorted(path.name for path in target.iterdir()) == [REPORT, "first", "second"]
            assert len({path.read_text() for path in target.iterdir()}) == 1
    with staged_folder(target) as staging:
        (staging / REPORT).write_text("last")
    assert list(tmp_path.iterdir()) == [target]


def _write_until_interrupted(target: Path, pipe: int) -> None:
    atexit._clear()  # what this process is to do at its end, not its parent
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _write_for_ever(target, pipe)
    except KeyboardInterrupt:
        atexit._run_exitfuncs()
        os._exit(0)
    finally:
        os._exit(1)


def test_an_interrupt_at_any_moment_leaves_a_whole_folder_or_none_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "above" / "out"
    delays = random.Random(0)
    for _ in range(150):
        readable, writable = os.pipe()
        process = os.fork()
        if process == 0:
            _write_until_interrupted(target, writable)
        os.read(readable, 1)
        time.sleep(delays.uniform(0, 0.002))
        os.kill(process, signal.SIGINT)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        os.close(readable)
        os.close(writable)
        left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir())
        assert left in ([], [f"above/out/{name}" for name in (REPORT, "first", "second")])


def test_what_another_process_is_writing_is_not_cleaned_up(tmp_path: Path) -> None:
    with staged_folder(tmp_path / "out") as first:
        (first / "mine").write_text("x")
        with staged_folder(tmp_path / "out") as second:
            assert first != second
        assert (first / "mine").read_text() == "x"
        (first / REPORT).write_text("first")
        (tmp_path / "out" / REPORT).write_text("second")
    assert (tmp_path / "out" / REPORT).read_text() == "first"


def test_a_file_under_the_name_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(FileError, match="it is a file"), staged_folder(tmp_path / "out"):
        pass


def test_a_folder_is_for_whom_the_mask_of_the_process_says(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with staged_folder(tmp_path / "out"):
        pass
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


# ---------------------------------------------------------------------------------------------------- quantization


def test_a_quantized_decoder_is_measured_and_its_runtime_generates_what_the_file_does(tmp_path: Path) -> None:
    result = export_model("llama", tmp_path / "out", FolderOptions(runtime="genai", quantize=QUANTIZATIONS["int4"]))
    assert all(one.agrees for one in result.comparisons)  # of the file before
    assert result.runtime_agrees is True
    assert result.quantization is not None
    assert (result.quantization.quantized, result.quantization.products) == (9, 9)  # packed
    assert 0 < result.agreement["divergence"] <= result.agreement["largest_divergence"] < 1
    assert json.loads((tmp_path / "out" / REPORT).read_text())["agreement"] == result.agreement


def test_more_bits_are_nearer(tmp_path: Path) -> None:
    divergence = {
        name: export_model("llama", tmp_path / name, FolderOptions(quantize=QUANTIZATIONS[name])).agreement[
            "divergence"
        ]
        for name in ("int4", "int8")
    }
    assert divergence["int8"] < divergence["int4"] / 10


def test_a_quantized_encoder_is_measured_by_its_outputs(tmp_path: Path) -> None:
    options = FolderOptions(build=BuildOptions(task="fill-mask"), quantize=QUANTIZATIONS["int8-dynamic"])
    result = export_model("bert", tmp_path / "out", options)
    assert 0.99 < result.agreement["lowest_cosine"] < 1
    assert validate_export(tmp_path / "out").ok  # what was recorded is what the quantized file gives


def test_examples_of_ones_own_calibrate(tmp_path: Path) -> None:
    case = build_model("bert", BuildOptions(task="fill-mask"))
    calls = [case.inputs({**case.task.sizes, "seq": length}) for length in (3, 9)]
    torch.save(calls, tmp_path / "calls.pt")
    out = str(tmp_path / "out")
    words = ["export", "-m", "bert", "-t", "fill-mask", "-o", out, "--quantize", "int8-static", "-q"]
    assert main([*words, "--calibration", str(tmp_path / "calls.pt")]) == 0
    assert json.loads((tmp_path / "out" / REPORT).read_text())["agreement"]["lowest_cosine"] > 0.99


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"no file of torch", "cannot read the examples"), ([], "has no examples"), ([{"ids": 3}], "has no examples")],
    ids=["bytes", "none", "numbers"],
)
def test_examples_that_are_none_are_refused_before_the_work(
    content: Any, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calls.pt"
    file.write_bytes(content) if isinstance(content, bytes) else torch.save(content, file)
    words = ["export", "-m", "llama", "-o", str(tmp_path / "out"), "--quantize", "int8-static"]
    assert main([*words, "--calibration", str(file)]) == 1
    assert text in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("config", ["{'width': 4}", "type('Config', (), {'width': 4})()"])
def test_a_module_may_call_anything_its_configuration(config: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"""
import torch

class Mine(torch.nn.Linear):
    config = {config}

def make():
    return Mine(4, 2).eval(), (torch.randn(3, 4),)
""")
    assert main(["export", "-m", f"{tmp_path}/mine.py:make", "-o", f"{tmp_path}/out", "-q"]) == 0
    assert not (tmp_path / "out" / "config.json").exists()


def test_a_model_whose_code_raises_while_it_is_built_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(name: str, options: BuildOptions) -> None:
        raise AttributeError("'Config' object has no attribute 'dropout'\nand more")

    monkeypatch.setattr("exportguard.ship.folder.build_model", refuses)
    for words in (["-q"], ["--dry-run"]):
        assert main(["export", "-m", "llama", "-t", "text-generation", "-o", str(tmp_path / "out"), *words]) == 2
        told = capsys.readouterr().err.splitlines()[-1]
        assert "Error: llama cannot be built for text-generation: AttributeError: 'Config' object has no attr" in told
        assert list(tmp_path.iterdir()) == []


def test_a_dry_run_tells_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "-m", "llama", "-o", str(tmp_path / "out"), "--quantize", "int4", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "parameters" in said
    assert "4 bits (MatMulNBits)" in said
    assert main(["export", "-m", "mamba", "-o", str(tmp_path / "out"), "--for", "genai", "--dry-run"]) == 2
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------- transformers.js

JAVASCRIPT = """
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const [packages, folder] = process.argv.slice(2);
const entry = createRequire(packages + "/package.json").resolve("@huggingface/transformers");
const { AutoModelForCausalLM, Tensor, env } = await import(pathToFileURL(entry));
env.allowRemoteModels = false;
env.localModelPath = folder;
const ids = BigInt64Array.from([3n, 4n, 5n, 6n, 7n, 8n, 9n]);
const input_ids = new Tensor("int64", ids, [1, ids.length]);
const attention_mask = new Tensor("int64", new BigInt64Array(ids.length).fill(1n), [1, ids.length]);
const model = await AutoModelForCausalLM.from_pretrained("model");
const tokens = await model.generate({ input_ids, attention_mask, max_new_tokens: 6, do_sample: false });
console.log(JSON.stringify(tokens.tolist()[0].map(Number)));
"""


def test_transformers_js_finds_the_file_and_the_axis_of_its_empty_cache(tmp_path: Path) -> None:
    export_model("llama", tmp_path / "model", FolderOptions(runtime="transformers.js"))
    names = {str(path.relative_to(tmp_path / "model")) for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert names == {"config.json", "examples.pt", REPORT, "generation_config.json", "onnx/model.onnx"}
    model = exportguard.load(tmp_path / "model" / "onnx" / "model.onnx")
    caches = [value.shape for value in model.inputs if value.name.startswith("past_key_values")]
    assert {shape[0] for shape in caches if shape is not None} == {"batch_size"}
    assert validate_export(tmp_path / "model").ok


def test_weights_beside_the_file_get_the_name_that_transformers_js_asks_for(tmp_path: Path) -> None:
    model = exportguard.to_onnx(torch.nn.Linear(64, 64).eval(), (torch.randn(2, 64),))
    model.save(tmp_path / "model.onnx", external_data="always")
    arrange_for_transformers_js(tmp_path)
    assert sorted(path.name for path in (tmp_path / "onnx").iterdir()) == ["model.onnx", "model.onnx_data"]
    session = OrtSession(tmp_path / "onnx" / "model.onnx")
    assert session.run({"input": torch.zeros(2, 64)})[0].shape == (2, 64)
    assert json.loads((tmp_path / "config.json").read_text())["transformers.js_config"]["use_external_data_format"] == {
        "model": 1
    }


@needs_node
@pytest.mark.parametrize(
    ("name", "dtype"), [("llama", "float32"), ("qwen3", "float32"), ("gpt2", "float32"), ("llama", "float16")]
)
def test_transformers_js_generates_what_the_model_generates(name: str, dtype: str, tmp_path: Path) -> None:
    build = BuildOptions(dtype=getattr(torch, dtype))
    export_model(name, tmp_path / "model", FolderOptions(runtime="transformers.js", build=build))
    tokens = run_in_node(JAVASCRIPT, tmp_path)
    model: Any = build_model(name, build).model
    ids = torch.arange(3, 10)[None]
    expected = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
    assert tokens == expected[0].tolist()


#: Numbers that JSON carries exactly: integers below 64 and sixteenths.
ENCODER = """
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const [packages, folder, auto] = process.argv.slice(2);
const entry = createRequire(packages + "/package.json").resolve("@huggingface/transformers");
const transformers = await import(pathToFileURL(entry));
transformers.env.allowRemoteModels = false;
transformers.env.localModelPath = folder;
const inputs = {};
for (const [name, { type, dims, values }] of Object.entries(JSON.parse(readFileSync(folder + "inputs.json")))) {
  const data = type === "int64" ? BigInt64Array.from(values, BigInt) : Float32Array.from(values);
  inputs[name] = new transformers.Tensor(type, data, dims);
}
const model = await transformers[auto].from_pretrained("model");
const outputs = Object.entries(await model(inputs)).filter(([, value]) => value?.data);
console.log(JSON.stringify(Object.fromEntries(outputs.map(([name, value]) => [name, Array.from(value.data)]))));
"""

ENCODERS = {
    "features": ("bert", "feature-extraction", "AutoModel", "last_hidden_state", torch.float32),
    "a class of a text": ("bert", "text-classification", "AutoModelForSequenceClassification", "logits", torch.float32),
    "words": ("bert", "fill-mask", "AutoModelForMaskedLM", "logits", torch.float32),
    "a class of a picture": ("vit", "image-classification", "AutoModelForImageClassification", "logits", torch.float32),
    "a picture in float16": ("vit", "image-classification", "AutoModelForImageClassification", "logits", torch.float16),
}


@needs_node
@pytest.mark.parametrize(("name", "task", "auto", "output", "dtype"), ENCODERS.values(), ids=ENCODERS)
def test_transformers_js_computes_what_the_model_computes(
    name: str, task: str, auto: str, output: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    options = FolderOptions(runtime="transformers.js", build=BuildOptions(task=task, dtype=dtype))
    export_model(name, tmp_path / "model", options)
    case = build_model(name, options.build)
    inputs = {key: (value * 16).round() / 16 if value.is_floating_point() else value
              for key, value in case.inputs(case.task.sizes).items()}  # fmt: skip
    told = {
        key: {
            "type": "int64" if value.dtype == torch.int64 else "float32",
            "dims": list(value.shape),
            "values": value.flatten().tolist(),
        }
        for key, value in inputs.items()
    }
    (tmp_path / "inputs.json").write_text(json.dumps(told))
    outputs = run_in_node(ENCODER, tmp_path, auto)
    with torch.no_grad():
        expected = case.model(**inputs)[output]
    got = torch.tensor(outputs[output]).reshape(expected.shape)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(got, expected.float(), **tolerance)


def test_generation_in_other_runtimes_needs_keys_and_values_alone(tmp_path: Path) -> None:
    for runtime in ("optimum", "transformers.js"):
        with pytest.raises(InvalidArgumentError, match="does not go on from keys and values alone"):
            export_model("mamba", tmp_path / "out", FolderOptions(runtime=runtime))  # type: ignore[arg-type]
