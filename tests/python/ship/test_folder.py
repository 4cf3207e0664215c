"""Folders that runtimes load: what is in them, that they are whole, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from exportguard.errors import ExportGuardError, FileError, InvalidArgumentError
from exportguard.models import BuildOptions
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship import FolderOptions, export_model
from exportguard.ship.decoder import positions
from exportguard.ship.generation import compare_generation
from exportguard.ship.staging import REPORT, staged_folder

DECODERS = ("llama", "mistral", "gemma3", "gpt2")


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_generates_what_the_model_generates(name: str, tmp_path: Path) -> None:
    result = export_model(name, tmp_path / "out", FolderOptions(runtime="genai"))
    assert len(result.comparisons) == 6
    assert all(one.agrees for one in result.comparisons)
    assert result.runtime_agrees is True


def test_a_folder_has_the_model_its_configurations_and_a_report(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_model("qwen3", folder, FolderOptions(runtime="genai"))
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
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


def test_a_model_of_another_task_is_compared_and_written(tmp_path: Path) -> None:
    result = export_model("bert", tmp_path / "out", FolderOptions(build=BuildOptions(task="fill-mask")))
    assert result.task == "fill-mask"
    assert result.inputs[0] == "input_ids"
    assert all(one.agrees for one in result.comparisons)


def test_a_model_with_states_is_written_as_its_own_code_calls_it(tmp_path: Path) -> None:
    result = export_model("mamba", tmp_path / "out")
    assert any("cache_params" in name for name in result.inputs)
    assert all(one.agrees for one in result.comparisons)


def test_a_folder_with_a_tokenizer_keeps_it(tmp_path: Path) -> None:
    source = tmp_path / "source"
    _small_checkpoint(source)
    export_model(str(source), tmp_path / "out", FolderOptions(runtime="genai"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("b a").input_ids == [4, 3]


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
        return compare_generation(args[0], args[1], type(prompts)(**{**vars(prompts), "logits": shifted}), args[3])

    monkeypatch.setattr("exportguard.ship.folder.compare_generation", wrong)
    with pytest.raises(ExportGuardError, match="does not generate what the model does: logits of step 0"):
        export_model("llama", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


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


def test_an_earlier_export_is_replaced_and_another_folder_is_not(tmp_path: Path) -> None:
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


def test_a_file_under_the_name_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(FileError, match="it is a file"), staged_folder(tmp_path / "out"):
        pass


def test_a_folder_is_for_whom_the_mask_of_the_process_says(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with staged_folder(tmp_path / "out"):
        pass
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode
