"""Folders as people have them: each is exported, or refused in a line with what to do, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

from exportguard.command_line import main


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small checkpoint; the output stands in a folder of its own."""
    folder = tmp_path / "source"
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=16, head_dim=8
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def says(**fields: Any) -> Callable[[Path], None]:
    """A change of config.json."""

    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **fields}))

    return change


def holds(name: str, content: bytes) -> Callable[[Path], None]:
    """A file with other content than a folder should have."""
    return lambda folder: (folder / name).write_bytes(content) and None


def is_cut(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-40]) and None


def has_code(folder: Path) -> None:
    says(model_type="mine", architectures=["Mine"], auto_map={"AutoConfig": "mine.Config"})(folder)
    (folder / "mine.py").write_text(f"open({str(folder.parent / 'ran')!r}, 'w')\n")


def is_adapter(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')


def has_other_weights(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / name)

    return change


def lacks_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop("model.layers.0.mlp.up_proj.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def lacks_a_shard(folder: Path) -> None:
    transformers.LlamaForCausalLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="2KB")
    sorted(folder.glob("model-*.safetensors"))[1].unlink()


def has_a_broken_index(folder: Path) -> None:
    lacks_a_shard(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": 3')


def ends_with_a_word(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": "</s>"}')


def runs_a_program(folder: Path) -> None:
    """What a pickle can do; torch reads weights alone."""
    (folder / "model.safetensors").unlink()
    target = str(folder.parent / "ran").encode()
    (folder / "pytorch_model.bin").write_bytes(b"cbuiltins\nopen\n(V" + target + b"\nVw\ntR.")


def has_garbage(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x" * 100)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4000\n"

REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no heads": (says(num_attention_heads=0), "cannot be read"),
    "a word for a size": (says(hidden_size="big"), "'hidden_size' expected int"),
    "an unknown dtype": (says(dtype="float7"), "float7"),
    "an unknown function": (says(hidden_act="nope"), "nope"),
    "gptq": (says(quantization_config={"quant_method": "gptq", "bits": 4}), "are quantized (gptq)"),
    "awq": (says(quantization_config={"quant_method": "awq", "bits": 4}), "are quantized (awq)"),
    "bitsandbytes": (
        says(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
        "are quantized (bitsandbytes)",
    ),
    "a word for a quantization": (says(quantization_config="few bits"), "cannot be read"),
    "code of its own": (has_code, "is not run here: load the model in Python"),
    "an adapter": (is_adapter, "merge it into its model"),
    "gguf": (has_other_weights("model.gguf"), "has no weights"),
    "a .pt file": (has_other_weights("model.pt"), "has no weights"),
    "a missing weight": (lacks_a_weight, "up_proj"),
    "a missing shard": (lacks_a_shard, "finish the download"),
    "a pointer to weights": (holds("model.safetensors", POINTER), "run `git lfs pull`"),
    "a pointer to a tokenizer": (holds("tokenizer.json", POINTER), "tokenizer.json is git-lfs's pointer"),
    "half of a download": (
        has_other_weights("model.safetensors.incomplete"),
        "the download of model.safetensors.incomplete is not finished",
    ),
    "a class that there is not": (says(architectures=["Nothing"]), "was saved from Nothing, which transformers"),
    "a class that is none of models": (
        says(architectures=["AutoConfig"]),
        "AutoConfig, as its config.json says, which",
    ),
    "a number for a class": (says(architectures=3), "does not say from which class it was saved"),
    "numbers for classes": (says(architectures=[3]), "does not say from which class it was saved"),
    "an index without a table": (
        holds("model.safetensors.index.json", b'{"weight_map": 3}'),
        "model.safetensors.index.json: it has no table of weights and files",
    ),
    "weights of other shapes": (says(hidden_size=32), "lm_head.weight: [16, 16] and not [16, 32]"),
    "another vocabulary": (says(vocab_size=32), "model.embed_tokens.weight: [16, 16] and not [32, 16]"),
    "more layers than weights": (says(num_hidden_layers=3), "18 are missing (model.layers.1"),
    "weights that are cut": (is_cut("model.safetensors"), "source/model.safetensors is cut short"),
    "weights that are none": (holds("model.safetensors", b"\xff" * 99), "no file of safetensors"),
    "no weights in the file": (holds("model.safetensors", b""), "no file of safetensors"),
    "a cut configuration": (holds("config.json", b'{"model_type": "lla'), "config.json"),
    "a configuration in other letters": (holds("config.json", b"\xff\xfe{}"), "config.json"),
    "a configuration without fields": (holds("config.json", b"[1]"), "config.json: it holds a list"),
    "a model that there is not": (says(model_type="never_heard"), "never_heard"),
    "a cut generation configuration": (holds("generation_config.json", b"{"), "generation_config.json"),
    "a cut tokenizer": (holds("tokenizer.json", b'{"version": '), "tokenizer.json"),
    "a cut processor": (holds("preprocessor_config.json", b"{"), "preprocessor_config.json"),
    "a broken index": (has_a_broken_index, "model.safetensors.index.json"),
    "an end that is a word": (ends_with_a_word, "generation_config.json"),
    "a pickle that is a program": (runs_a_program, "cannot be loaded from"),
    "a pickle that is none": (has_garbage, "copy it again, or have it saved as safetensors"),
}


@pytest.mark.parametrize(("change", "text"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_exported_is_told_in_a_line(
    change: Callable[[Path], None], text: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(source)
    assert main(["export", "-m", str(source), "-o", str(source.parent / "place" / "out"), "-q"]) in (1, 2)
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("Error: ")
    assert text in told
    assert [path for path in source.parent.iterdir() if path.name != "source"] == []


FILES = {
    "model.safetensors": "it is a file, and no folder with a model in it; pass the folder that it lies in",
    "config.json": "pass the folder that it lies in",
    "model.onnx": "`exportguard optimize`",
    "model.pt": "pass path/file.py:function",
    "model.pt2": "exportguard.to_onnx(torch.export.load(path))",
    "model.gguf": "in few bits",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_no_model_and_told_what_it_is(name: str, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source / name).touch()
    assert main(["export", "-m", str(source / name), "-o", str(source.parent / "out"), "-q"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert FILES[name].removeprefix("it ") in told
    assert not (source.parent / "out").exists()


def test_a_class_is_told_the_name_that_it_has_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "-m", "LlamaForCausalLM", "-o", str(tmp_path / "out"), "-q"]) == 2
    assert "did you mean llama (-t text-generation)?" in capsys.readouterr().err


def test_an_end_outside_of_the_vocabulary_is_told_in_the_words_of_the_runtime(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "generation_config.json").write_text('{"eos_token_id": 999}')
    assert main(["export", "-m", str(source), "-o", str(source.parent / "out"), "-q", "--for", "genai"]) == 1
    assert "onnxruntime-genai does not run what was exported: eos_token_id (999)" in capsys.readouterr().err
    assert [path.name for path in source.parent.iterdir()] == ["source"]


@pytest.mark.parametrize(
    "told", ["{}", '{"eos_token_id": 2, "bos_token_id": [1, 3]}'], ids=["no end", "several beginnings"]
)
def test_special_tokens_that_transformers_takes_are_those_of_the_runtime(told: str, source: Path) -> None:
    """Without an end in generation_config.json that of config.json ends a text there, which the model prefers here."""
    weights = load_file(source / "model.safetensors")
    head = weights["lm_head.weight"]
    head.copy_(torch.randn(head.shape, generator=torch.Generator().manual_seed(0)))
    weights["model.norm.weight"].fill_(1.0)
    head[2] = 3 * head[2]
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    (source / "generation_config.json").write_text(told)
    assert main(["export", "-m", str(source), "-o", str(source.parent / "out"), "-q", "--for", "genai"]) == 0


def test_a_class_that_is_a_word_and_a_link_to_a_folder_are_taken(source: Path) -> None:
    says(architectures="LlamaForCausalLM")(source)
    (source.parent / "real").mkdir()
    (source.parent / "link").symlink_to("real")
    assert main(["export", "-m", str(source), "-o", str(source.parent / "link"), "-q"]) == 0
    assert (source.parent / "link").is_symlink()
    assert (source.parent / "real" / "model.onnx").is_file()
    assert sorted(path.name for path in source.parent.iterdir()) == ["link", "real", "source"]


PLACES: dict[str, tuple[Callable[[Path], str], str]] = {
    "below a file": (lambda folder: str(folder / "config.json" / "out"), "is no folder"),
    "a long name": (lambda folder: str(folder.parent / ("a" * 250)), "is too long"),
    "the model itself": (str, "a folder with other files in it"),
    "the root": (lambda folder: "/", "a folder with other files in it"),
}


@pytest.mark.parametrize(("place", "text"), PLACES.values(), ids=PLACES)
def test_a_place_that_cannot_be_written_to_is_found_out_before_the_model_is_loaded(
    place: Callable[[Path], str], text: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "model.safetensors").write_bytes(b"never read")
    assert main(["export", "-m", str(source), "-o", place(source), "-q"]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("Error: cannot write")
    assert text in told


def test_a_task_that_a_checkpoint_has_no_class_for_is_told_with_those_that_it_has(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "-m", str(source), "-o", str(source.parent / "out"), "-t", "image-classification"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "AutoModelForImageClassification has no class for llama; its tasks are text-generation" in told


@pytest.mark.parametrize("opset", ["17", "26", "new", "-1", "٢٠"])
def test_an_opset_that_is_none_is_refused(opset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "-m", "llama", "-o", str(tmp_path / "out"), "--opset", opset]) == 2
    assert "opset" in capsys.readouterr().err.splitlines()[-1]


def test_a_folder_by_a_link_and_with_other_letters_is_exported(source: Path) -> None:
    place = source.parent / "mödel 模型 it's"
    place.mkdir()
    source.rename(place / "the model")
    (place / "link").symlink_to("the model")
    assert main(["export", "-m", f"{place / 'link'}/", "-o", str(place / "out ü"), "-q", "--opset", "newest"]) == 0
    assert (place / "out ü" / "model.onnx").is_file()


def _as_a_tokenizer_says(*given: object, **named: object) -> None:
    raise Exception("No space left on device (os error 28)")


@pytest.fixture(scope="module")
def worded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a tokenizer."""
    folder = tmp_path_factory.mktemp("worded") / "source"
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=16, head_dim=8
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    words = {word: number for number, word in enumerate(["<unk>", *(f"word{number}" for number in range(15))])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("size", [16, 700, 2_000, 20_000])
def test_a_disk_that_takes_no_more_is_told_and_leaves_nothing(
    size: int, worded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of the size of a file stands for it: at the configuration, the tokenizer and the model."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        code = main(["export", "-m", str(worded), "-o", str(tmp_path / "out"), "-q"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("Error: cannot write")
    assert "File too large" in told
    assert ".part" not in told, "the name of what is removed again"
    assert list(tmp_path.iterdir()) == []


def test_examples_that_the_disk_does_not_take_are_told(
    worded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch's writer has an error of its own for it."""
    kept, limits = torch.save, resource.getrlimit(resource.RLIMIT_FSIZE)

    def save(*given: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
        try:
            kept(*given)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(torch, "save", save)
    assert main(["export", "-m", str(worded), "-o", str(tmp_path / "out"), "-q"]) == 1
    assert "out: File too large; free some space" in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_the_words_of_other_libraries_for_a_full_disk_are_known(
    worded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(transformers.PreTrainedTokenizerBase, "save_pretrained", _as_a_tokenizer_says)
    assert main(["export", "-m", str(worded), "-o", str(tmp_path / "out"), "-q"]) == 1
    assert "No space left on device; free some space" in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_weights_of_another_dtype_are_exported(source: Path) -> None:
    transformers.LlamaForCausalLM.from_pretrained(source, dtype=torch.bfloat16).save_pretrained(source)
    assert main(["export", "-m", str(source), "-o", str(source.parent / "out"), "-q"]) == 0


NAMES = {
    "a long one": ("x" * 300, "File name too long"),
    "a long path": ("x/" * 3000, "File name too long"),
    "a link to itself": ("loop", "Too many levels of symbolic links"),
}


@pytest.mark.parametrize(("name", "reason"), NAMES.values(), ids=NAMES)
def test_a_name_that_the_system_cannot_follow_is_told_in_a_line(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    assert main(["export", "-m", name, "-o", "out"]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    assert reason in line
    assert len(line) < 200


def test_a_folder_that_may_not_be_read_is_told_as_that(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(source) and bool(mode))  # root may read all
    assert main(["export", "-m", str(source), "-o", str(source.parent / "out")]) == 1
    assert f"cannot read {source}: Permission denied" in capsys.readouterr().err


def test_a_place_without_a_name_for_runtimes_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "-m", "llama", "-o", os.fsdecode(bytes(tmp_path) + b"/out\xff")]) == 1
    assert "runtimes read names as UTF-8; pass another folder" in capsys.readouterr().err

    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["export", "-m", "llama", "-o", "out"]) == 1
    assert "cannot write out: the folder where you are is gone" in capsys.readouterr().err
