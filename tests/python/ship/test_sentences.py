"""Folders of sentence-transformers: one file gives the tokens and the vector of each text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
import transformers
from safetensors.torch import save_file

from exportguard import ExportGuardError, FileError, FolderOptions, InvalidArgumentError, export_model
from exportguard.command_line import main
from exportguard.models import BuildOptions, build_model
from exportguard.models.sentence_layers import POOLINGS

WIDTH = 16
OLD, NEW = "sentence_transformers.models.", "sentence_transformers.base.modules."

Modules = Sequence[tuple[str, Mapping[str, Any]]]


def saved(folder: Path, model: Any, modules: Modules = (), top: str = "", **settings: Any) -> Path:
    """What `SentenceTransformer.save` writes of a model and modules behind it, without weights of theirs."""
    model.save_pretrained(folder / top)
    entries = [{"idx": 0, "name": "0", "path": top, "type": f"{OLD}Transformer"}]
    for place, (kind, config) in enumerate(modules, 1):
        path = f"{place}_{kind.rpartition('.')[2]}"
        (folder / path).mkdir(parents=True)
        (folder / path / "config.json").write_text(json.dumps(config))
        kind = kind if "." in kind else f"{OLD}{kind}"
        entries.append({"idx": place, "name": str(place), "path": path, "type": kind})
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / top / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 12, **settings}))
    return folder


def bert(**fields: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.BertModel(transformers.BertConfig(vocab_size=32, **sizes, **fields)).eval()


def pooling(*ways: str) -> tuple[str, dict[str, Any]]:
    return "Pooling", {"embedding_dimension": WIDTH, "pooling_mode": list(ways)}


def dense(folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
    save_file(dict(weights), folder / "model.safetensors")


BATCHES = {
    "padding on both sides": [[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 1, 1, 1, 0]],
    "one text": [[1, 1, 1]],
    "one token": [[1]],
    "an empty one": [[1, 1, 1, 1], [0, 0, 0, 0]],
    "one token of several": [[0, 0, 0, 1], [1, 0, 0, 0]],
}


def given(mask: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    ids = torch.arange(3, 3 + len(mask) * len(mask[0])).reshape(len(mask), -1) % 32
    kinds = torch.zeros_like(ids)
    return {"input_ids": ids, "attention_mask": torch.tensor(mask), "token_type_ids": kinds}


def ran(folder: Path, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    outputs = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    return {value.name: torch.from_numpy(out) for value, out in zip(session.get_outputs(), outputs, strict=True)}


def pooled(tokens: torch.Tensor, mask: torch.Tensor, way: str) -> torch.Tensor:
    """Text by text, as its definition says; sums in float64."""
    rows = []
    for text, seen in zip(tokens.double(), mask, strict=True):
        places = seen.nonzero().flatten()
        own = text[places]
        order = torch.arange(1, len(own) + 1, dtype=torch.float64)[:, None]
        if way == "max":
            rows.append(own.amax(0) if len(own) else torch.full((WIDTH,), -torch.inf, dtype=torch.float64))
        elif way == "cls":
            rows.append(own[0] if len(own) else text[0])
        elif not len(own):
            rows.append(torch.zeros(WIDTH, dtype=torch.float64))
        elif way == "lasttoken":
            rows.append(own[-1])
        elif way == "weightedmean":
            rows.append((own * order).sum(0) / order.sum())
        else:
            rows.append(own.sum(0) / (len(own) if way == "mean" else len(own) ** 0.5))
    return torch.stack(rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_way_of_pooling_is_that_of_its_definition(dtype: torch.dtype, tmp_path: Path) -> None:
    model = bert()
    source = saved(tmp_path / "source", model, [pooling(*POOLINGS)])
    options = FolderOptions(build=BuildOptions(dtype=dtype))
    result = export_model(source, tmp_path / "out", options)
    assert result.outputs == ["last_hidden_state", "sentence_embedding"]
    assert all(one.agrees for one in result.comparisons)

    model, bound = model.to(dtype), 1e-5 if dtype == torch.float32 else 8e-3
    for mask in BATCHES.values():
        inputs = given(mask)
        with torch.no_grad():
            tokens = model(**inputs).last_hidden_state
        got = ran(tmp_path / "out", inputs)
        assert got["sentence_embedding"].dtype == dtype
        torch.testing.assert_close(got["last_hidden_state"], tokens, atol=bound, rtol=bound)
        wanted = torch.cat([pooled(got["last_hidden_state"], inputs["attention_mask"], way) for way in POOLINGS], 1)
        torch.testing.assert_close(got["sentence_embedding"].double(), wanted, atol=bound, rtol=bound)


def test_layers_behind_the_pooling_are_in_the_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    weights = {"linear.weight": torch.randn(8, WIDTH), "linear.bias": torch.randn(8)}
    second = {"linear.weight": torch.randn(8, 8)}
    norm = {"norm.weight": torch.randn(8), "norm.bias": torch.randn(8)}
    plain = {"in_features": WIDTH, "out_features": 8, "bias": True}
    gelu = {"in_features": 8, "out_features": 8, "bias": False, "activation_function": "torch.nn.modules.GELU"}
    modules = [
        ("Pooling", {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False}),
        ("Dense", {**plain, "activation_function": "torch.nn.modules.activation.Tanh"}),
        ("Dense", {**gelu, "use_residual": True}),
        ("LayerNorm", {"dimension": 8}),
        ("Dropout", {"dropout": 0.5}),
        (f"{NEW}normalize.Normalize", {}),
    ]
    source = saved(tmp_path / "source", bert(), modules)
    for path, own in {"2_Dense": weights, "3_Dense": second, "4_LayerNorm": norm}.items():
        save_file(own, source / path / "model.safetensors")
    export_model(source, tmp_path / "out")
    got = ran(tmp_path / "out", given(BATCHES["padding on both sides"]))
    mask = torch.tensor(BATCHES["padding on both sides"])
    vectors = pooled(got["last_hidden_state"], mask, "mean").float()
    vectors = (vectors @ weights["linear.weight"].T + weights["linear.bias"]).tanh()
    vectors = torch.nn.functional.gelu(vectors @ second["linear.weight"].T) + vectors
    vectors = torch.nn.functional.layer_norm(vectors, (8,), norm["norm.weight"], norm["norm.bias"])
    vectors = vectors / vectors.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(got["sentence_embedding"], vectors, atol=1e-5, rtol=1e-5)

    for path in ("modules.json", "2_Dense/model.safetensors", "6_Normalize/config.json", "sentence_bert_config.json"):
        assert (tmp_path / "out" / path).read_bytes() == (source / path).read_bytes() or path == "modules.json"
    assert main(["validate", str(tmp_path / "out")]) == 0


def test_weights_of_pickles_are_read_and_code_is_not_run(tmp_path: Path) -> None:
    modules = [pooling("mean"), ("Dense", {"in_features": WIDTH, "out_features": 4})]
    source = saved(tmp_path / "source", bert(), modules)
    torch.save(
        {"linear.weight": torch.ones(4, WIDTH), "linear.bias": torch.zeros(4)}, source / "2_Dense/pytorch_model.bin"
    )
    assert export_model(source, tmp_path / "out").outputs[-1] == "sentence_embedding"
    torch.save({"linear.weight": torch.nn.Linear(WIDTH, 4)}, source / "2_Dense/pytorch_model.bin")
    with pytest.raises(FileError, match=r"pytorch_model\.bin are not those"):
        build_model(str(source))


def test_tokens_of_another_width_are_given_beside_those_of_the_model(tmp_path: Path) -> None:
    inner = {"in_features": WIDTH, "out_features": 4, "module_input_name": "token_embeddings"}
    source = saved(tmp_path / "source", bert(), [("Dense", inner), pooling("mean")])
    save_file(
        {"linear.weight": torch.ones(4, WIDTH), "linear.bias": torch.ones(4)}, source / "1_Dense/model.safetensors"
    )
    result = export_model(source, tmp_path / "out")
    assert result.outputs == ["last_hidden_state", "token_embeddings", "sentence_embedding"]
    got = ran(tmp_path / "out", given(BATCHES["one text"]))
    torch.testing.assert_close(got["sentence_embedding"], got["token_embeddings"].mean(1), atol=1e-6, rtol=1e-5)


MODELS = {
    "a decoder, padded in front": (
        transformers.Qwen3Config,
        transformers.Qwen3Model,
        {"head_dim": 8, "num_key_value_heads": 2},
    ),
    "no token types": (transformers.DistilBertConfig, transformers.DistilBertModel, {"n_heads": 2, "dim": WIDTH}),
    "no mask of its own": (transformers.FNetConfig, transformers.FNetModel, {}),
    "an encoder with a decoder": (transformers.T5Config, transformers.T5Model, {"d_model": WIDTH, "num_heads": 2}),
}


@pytest.mark.parametrize(("config", "owner", "fields"), MODELS.values(), ids=MODELS)
def test_a_model_is_given_what_it_takes(config: Any, owner: Any, fields: dict[str, int], tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = owner(config(vocab_size=32, **{**sizes, **fields})).eval()
    source = saved(tmp_path / "source", model, [pooling("lasttoken")])
    result = export_model(source, tmp_path / "out")
    assert result.outputs == ["last_hidden_state", "sentence_embedding"]
    inputs = {name: value for name, value in given([[0, 1, 1], [1, 1, 1]]).items() if name in result.inputs}
    got = ran(tmp_path / "out", inputs)
    torch.testing.assert_close(got["sentence_embedding"], got["last_hidden_state"][:, -1])


def test_a_model_in_a_folder_of_its_own_comes_to_the_top(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", bert(), [pooling("cls")], top="0_BERT")
    export_model(source, tmp_path / "out")
    assert json.loads((tmp_path / "out/modules.json").read_text())[0]["path"] == ""
    assert (tmp_path / "out/sentence_bert_config.json").is_file()
    assert not (tmp_path / "out/0_BERT").exists()


def test_the_tokenizer_cuts_and_lowers_texts_as_the_settings_say(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 3}, unk_token="[UNK]"))
    source = saved(tmp_path / "source", bert(), [pooling("mean")], do_lower_case=True)
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(source)
    export_model(source, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.model_max_length == 12
    assert tokenizer("A")["input_ids"] == [3]


@pytest.mark.parametrize("task", [None, "feature-extraction"])
def test_a_model_alone_is_written_as_it_was(task: str | None, tmp_path: Path) -> None:
    source = saved(tmp_path / "source", bert())  # nothing stands behind it
    result = export_model(source, tmp_path / "out", FolderOptions(build=BuildOptions(task=task)))
    assert result.outputs == ["last_hidden_state", "pooler_output"]


def test_a_head_of_another_task_has_nothing_of_it_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = bert().config
    source = saved(tmp_path / "source", transformers.BertForMaskedLM(config), [pooling("mean")])
    result = export_model(source, tmp_path / "out", FolderOptions(build=BuildOptions(task="fill-mask")))
    assert result.outputs == ["logits"]
    assert "modules.json lists sentence_transformers.models.Pooling behind the model" in caplog.text


def test_modules_may_stay_wide(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", bert(), [pooling("mean")])
    build = BuildOptions(dtype=torch.float16, keep_float32=("model.embeddings",))
    assert export_model(source, tmp_path / "out", FolderOptions(build=build)).kept_float32 == ["model.embeddings"]


PLAIN = {"in_features": WIDTH, "out_features": 4}
REFUSED: dict[str, tuple[Modules, dict[str, Any], str]] = {
    "a module of its own": ([("custom_st.Pooling", {})], {}, "lists custom_st.Pooling, which is not known"),
    "another module": ([("CNN", {}), pooling("mean")], {}, "lists sentence_transformers.models.CNN, which is not"),
    "a way of pooling": ([pooling("median")], {}, "pools by median, which is not known"),
    "no way of pooling": ([pooling()], {}, "pools by nothing"),
    "a prompt left out": ([("Pooling", {**pooling("cls")[1], "include_prompt": False})], {}, "tokens of a prompt out"),
    "another field": ([("Pooling", {**pooling("cls")[1], "power": 3})], {}, "config.json has power, which is not"),
    "no field": ([("Pooling", {})], {}, "1_Pooling has no config.json of a pooling"),
    "weights": ([pooling("mean"), ("Dense", PLAIN)], {}, "2_Dense has no weights"),
    "no width": ([pooling("mean"), ("Dense", {"in_features": 3})], {}, "has not what a layer is made of: 'out_feat"),
    "an activation": (
        [pooling("mean"), ("Dense", {**PLAIN, "activation_function": "mine.Swish"})],
        {},
        "mine.Swish of a Dense layer is no class of torch.nn",
    ),
    "a function": (
        [pooling("mean"), ("Dense", {**PLAIN, "activation_function": "torch.nn.functional.relu"})],
        {},
        "torch.nn.functional.relu of a Dense layer is no class",
    ),
    "what nothing makes": ([("Normalize", {"module_input_name": "image"})], {}, "reads image, and what stands before"),
    "before the pooling": ([("Normalize", {}), pooling("mean")], {}, "reads sentence_embedding, and what stands"),
    "another task": ([pooling("mean")], {"transformer_task": "fill-mask"}, "asks for transformer_task 'fill-mask'"),
    "other tokens": (
        [pooling("mean")],
        {"modality_config": {"text": {"method": "get_text_features", "method_output_name": "pooler_output"}}},
        "asks for modality_config",
    ),
    "another model": ([pooling("mean")], {"config_args": {"is_decoder": True}}, "loads the model with config_args"),
}


@pytest.mark.parametrize(("modules", "settings", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_known_is_refused_by_its_name(
    modules: Modules, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    source = saved(tmp_path / "source", bert(), modules, **settings)
    with pytest.raises(ExportGuardError) as caught:
        export_model(source, tmp_path / "out")
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


LISTS = {
    "no json": ("{", "cannot read .*modules.json"),
    "no list": ('{"a": 1}', "is no list of modules"),
    "nothing": ("[]", "lists no module"),
    "no type": ('[{"path": ""}]', "is no list of modules"),
    "a way out": (
        json.dumps([{"type": f"{OLD}Transformer"}, {"type": f"{OLD}Pooling", "path": "../../1_Pooling"}]),
        "leads out of its folder",
    ),
}


@pytest.mark.parametrize(("text", "message"), LISTS.values(), ids=LISTS)
def test_a_broken_list_is_told_as_that(text: str, message: str, tmp_path: Path) -> None:
    source = saved(tmp_path / "source", bert())
    (source / "modules.json").write_text(text)
    with pytest.raises(FileError, match=message):
        build_model(str(source))


def test_weights_of_another_shape_are_told_with_their_file(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", bert(), [pooling("mean"), ("Dense", PLAIN)])
    save_file(
        {"linear.weight": torch.ones(3, WIDTH), "linear.bias": torch.ones(4)}, source / "2_Dense/model.safetensors"
    )
    with pytest.raises(FileError, match=r"2_Dense/model\.safetensors are not those that its config.json tells of"):
        build_model(str(source))
    (source / "2_Dense/model.safetensors").write_bytes(b"cut")
    with pytest.raises(FileError, match=r"2_Dense/model\.safetensors are not those"):
        build_model(str(source))


def test_two_layers_of_one_folder_are_two(tmp_path: Path) -> None:
    """As modules without fields had none before sentence-transformers 6."""
    source = saved(
        tmp_path / "source", bert(), [pooling("mean"), ("Dense", {"in_features": WIDTH, "out_features": WIDTH})]
    )
    save_file(
        {"linear.weight": 2 * torch.eye(WIDTH), "linear.bias": torch.zeros(WIDTH)}, source / "2_Dense/model.safetensors"
    )
    listed = json.loads((source / "modules.json").read_text())
    bare = {"path": "", "type": f"{OLD}Normalize"}
    (source / "modules.json").write_text(json.dumps([*listed[:2], bare, *listed[2:], *listed[2:], bare]))
    assert list(build_model(str(source)).sentences.layers) == [
        "1_Pooling",
        "2_Normalize",
        "3_Dense",
        "4_Dense",
        "5_Normalize",
    ]


def test_a_hub_id_has_its_modules_too(tmp_path: Path) -> None:
    """As it lies in the cache of an earlier download."""
    place = tmp_path / "cache/models--team--sentences"
    saved(place / "snapshots/0", bert(), [pooling("mean"), ("Normalize", {})])
    (place / "refs").mkdir()
    (place / "refs/main").write_text("0")
    program = "import sys\nfrom exportguard.command_line import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "export", "-m", "team/sentences", "-o", str(tmp_path / "out")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "cache")}
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    got = ran(tmp_path / "out", given(BATCHES["one text"]))
    torch.testing.assert_close(got["sentence_embedding"].norm(dim=-1), torch.ones(1))
    assert (tmp_path / "out/1_Pooling/config.json").is_file()


def test_an_encoder_that_is_loaded_in_another_way_is_refused(tmp_path: Path) -> None:
    sizes = {"d_model": WIDTH, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    config = transformers.PegasusConfig(vocab_size=32, encoder_attention_heads=2, decoder_attention_heads=2, **sizes)
    source = saved(tmp_path / "source", transformers.PegasusModel(config), [pooling("mean")])
    with pytest.raises(InvalidArgumentError, match="takes the encoder of a pegasus alone"):
        build_model(str(source))
