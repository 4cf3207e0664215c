"""Models by name: small configurations, natural inputs, and errors for what is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoConfig, LlamaConfig, LlamaForCausalLM

from exportguard.cache_names import cache_argument
from exportguard.emptied_caches import emptied
from exportguard.errors import InvalidArgumentError
from exportguard.models import (
    BuildOptions,
    architectures,
    build_model,
    catalogue,
    model_names,
    models_of_task,
    tasks,
    tasks_of,
)
from exportguard.models.input_sets import all_input_sets, input_sets, sliding_window
from exportguard.models.kinds import kinds_of, kinds_of_config, missing_kinds, shrunk_with_every_kind
from exportguard.models.natural_inputs import main_input
from exportguard.models.shrink import shrunk
from exportguard.models.tables import exceptions

PAST = cache_argument(LlamaForCausalLM.forward) or ""


@pytest.mark.parametrize("name", architectures())
def test_every_shipped_architecture_is_small_and_runs_on_its_inputs(name: str) -> None:
    case = build_model(name)
    assert sum(parameter.numel() for parameter in case.model.parameters()) < 500_000
    with torch.no_grad():
        outputs = case.model(**case.inputs(case.task.sizes))
    assert all(torch.isfinite(value).all() for value in outputs.values() if isinstance(value, torch.Tensor))


@pytest.mark.parametrize("name", ["qwen2", "falcon", "deberta-v2", "resnet", "mbart"])
def test_a_model_type_that_is_not_shipped_is_shrunk_by_the_general_rule(name: str) -> None:
    case = build_model(name)
    with torch.no_grad():
        case.model(**case.inputs(case.task.sizes))


@pytest.mark.parametrize("task", ["question-answering", "multiple-choice", "text2text-generation"])
def test_tokens_that_all_attend_to_are_named_by_a_mask_and_differ_by_text(task: str) -> None:
    case = build_model("led" if task.startswith("text2text") else "longformer", BuildOptions(task=task))
    inputs = case.inputs(case.task.sizes)
    given = inputs["global_attention_mask"].flatten(0, -2).sum(1)
    assert given.tolist() == list(range(1, len(given) + 1))
    with torch.no_grad():
        case.model(**inputs)


OTHER_TASKS = [
    ("llava", "image-text-to-text"),
    ("internvl", "image-text-to-text"),
    ("wav2vec2", "feature-extraction"),
    ("vit", "feature-extraction"),
    ("llama", "feature-extraction"),
    ("gpt2", "text-classification"),
    ("bart", "text-classification"),
    ("mamba", "text-generation"),
    ("jamba", "text-generation"),
    ("roberta", "text-generation"),
    ("yolos", "object-detection"),
    ("perceiver", "feature-extraction"),
    ("mimi", "feature-extraction"),
    ("align", "zero-shot-image-classification"),
    ("univnet", "feature-extraction"),
]


@pytest.mark.parametrize(("name", "task"), OTHER_TASKS)
def test_each_task_has_natural_inputs(name: str, task: str) -> None:
    case = build_model(name, BuildOptions(task=task))
    with torch.no_grad():
        case.model(**case.inputs(case.task.sizes))


def test_what_a_model_would_draw_anew_in_each_call_is_an_input() -> None:
    case = build_model("vit_mae", BuildOptions(task="feature-extraction"))
    first, second = (case.model(**case.inputs(case.task.sizes)).last_hidden_state for _ in range(2))
    assert torch.equal(first, second)


def test_a_model_that_does_not_run_narrow_is_as_wide_as_its_default() -> None:
    config = build_model("align", BuildOptions(task="zero-shot-image-classification")).model.config
    text: Any = config.text_config  # type: ignore[union-attr]
    assert (text.hidden_size, text.num_hidden_layers, text.vocab_size) == (768, 2, 256)


def test_a_model_that_runs_neither_way_is_the_narrow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_runs", lambda case: False)
    assert build_model("bert").model.config.hidden_size == 64  # type: ignore[union-attr]


def test_a_model_that_cannot_be_built_either_way_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise ValueError("no such width")

    monkeypatch.setattr(catalogue, "_case", refuse)
    with pytest.raises(ValueError, match="no such width"):
        build_model("bert")


def test_a_picture_in_a_text_takes_the_places_of_its_tokens() -> None:
    case = build_model("llava", BuildOptions(task="image-text-to-text"))
    ids = case.inputs({"batch": 2, "seq": 6})["input_ids"]
    places = ids == case.model.config.image_token_id  # type: ignore[union-attr]
    assert ids.shape == (2, 16 + 6)
    assert places[:, :16].all()
    assert not places[:, 16:].any()


def test_a_model_with_other_main_inputs_is_refused() -> None:
    class Speaker(torch.nn.Module):
        main_input_name = "spectrogram"

    with pytest.raises(
        InvalidArgumentError, match="no natural inputs are known for Speaker, which takes spectrogram; pass"
    ):
        main_input.make_inputs(Speaker(), {})


def test_the_same_seed_gives_the_same_weights() -> None:
    first, second, other = (build_model("llama", BuildOptions(seed=seed)).model for seed in (1, 1, 2))
    weights = [model.get_input_embeddings().weight for model in (first, second, other)]  # type: ignore[operator]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_no_untrained_weight_is_all_the_same() -> None:
    model = build_model("bert").model
    assert all(parameter.std() > 0 for parameter in model.parameters() if parameter.numel() > 1)


def test_the_same_sizes_give_the_same_inputs() -> None:
    case = build_model("llama")
    first, second = (case.inputs(case.task.sizes) for _ in range(2))
    assert torch.equal(first["input_ids"], second["input_ids"])
    assert torch.equal(first[PAST].layers[1].keys, second[PAST].layers[1].keys)


def test_the_cache_holds_what_the_model_left_behind() -> None:
    cache = build_model("llama").inputs({"batch": 2, "seq": 3, "past": 5})[PAST]
    assert cache.get_seq_length() == 5
    assert cache.layers[0].keys.shape == (2, 4, 5, 16)


def test_an_emptied_cache_has_no_tokens_and_keeps_its_layers() -> None:
    cache = build_model("gemma3").inputs({"batch": 2, "seq": 3, "past": 5})[PAST]
    kinds = [type(layer) for layer in cache.layers]
    assert emptied(cache).get_seq_length() == 0
    assert [type(layer) for layer in cache.layers] == kinds
    assert all(layer.keys.shape[-2] == 0 for layer in cache.layers)


def test_an_emptied_cache_has_no_positions_either() -> None:
    states = torch.zeros(2, 1, 5, 4)
    layer = SimpleNamespace(keys=states, indexer_keys=states[:, 0], indexer_position_ids=torch.zeros(3, 2, 5))
    emptied(SimpleNamespace(layers=[layer]))
    assert [tuple(value.shape) for value in vars(layer).values()] == [(2, 1, 0, 4), (2, 0, 4), (3, 2, 0)]


def test_a_past_beyond_the_window_is_longer_than_what_the_cache_keeps() -> None:
    case = build_model("mistral")
    beyond = next(one for one in input_sets(case) if one.name == "past beyond the window")
    cache = case.inputs(beyond.sizes)[PAST]
    window = sliding_window(case)
    assert window == 16
    assert cache.get_seq_length() == beyond.sizes["past"] == 20
    assert cache.layers[0].keys.shape[-2] == window - 1


def test_a_model_without_a_window_has_no_set_beyond_it() -> None:
    names = [one.name for one in input_sets(build_model("llama"))]
    assert names == ["traced", "other sizes", "batch 1, one token", "empty past"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_weights_and_caches_have_the_dtype_asked_for(dtype: torch.dtype) -> None:
    case = build_model("llama", BuildOptions(dtype=dtype))
    assert {parameter.dtype for parameter in case.model.parameters()} == {dtype}
    assert case.inputs(case.task.sizes)[PAST].layers[0].keys.dtype == dtype


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    shrunk(LlamaConfig(), {"architectures": ["LlamaForCausalLM"]}).save_pretrained(tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"has no weights .* pass llama, the name of its architecture"):
        build_model(str(tmp_path))


@pytest.mark.parametrize("name", ["llama", "t5", "resnet"])
def test_a_folder_that_hides_an_architecture_is_told(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    with pytest.raises(InvalidArgumentError, match=rf"{name} is a folder here, .* hides the architecture"):
        build_model(name)
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        build_model(f"./{name}")
    Path(name).rmdir()
    assert build_model(name).name == name


def heads() -> dict[str, str]:
    """A model type with a class for each task that reads whole texts or pictures, and BERT's own heads."""
    found = {}
    for task in tasks().values():
        model_type = next(
            (name for name in ("bert", "vit", "wav2vec2", "segformer") if catalogue._classes(task, name)), None
        )
        if model_type and not task.cached:
            found[catalogue._classes(task, model_type)[0]] = model_type
    return {**found, "BertForPreTraining": "bert", "BertModel": "bert"}


@pytest.mark.parametrize(("head", "model_type"), heads().items(), ids=heads())
def test_a_folder_is_loaded_as_the_class_it_was_saved_from(head: str, model_type: str, tmp_path: Path) -> None:
    import transformers

    saved = getattr(transformers, head)(shrunk(CONFIG_MAPPING[model_type](), {})).eval()
    saved.save_pretrained(tmp_path)
    case = build_model(str(tmp_path))
    assert type(case.model) is type(saved)
    own = dict(saved.named_parameters())
    assert all(torch.equal(value, own[name]) for name, value in case.model.named_parameters())
    with torch.no_grad():
        case.model(**case.inputs(case.task.sizes))


def test_a_task_whose_head_has_no_weights_is_refused_with_their_names(tmp_path: Path) -> None:
    build_model("bert", BuildOptions(task="token-classification")).model.save_pretrained(tmp_path)  # type: ignore[operator]
    with pytest.raises(
        InvalidArgumentError, match=r"not those of BertForMaskedLM: \d+ are missing \(.*cls\.predictions"
    ):
        build_model(str(tmp_path), BuildOptions(task="fill-mask"))


def test_code_of_a_checkpoint_is_never_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: Any) -> str:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr("builtins.input", ask)
    content = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(InvalidArgumentError, match="contains custom code"):
        build_model(str(tmp_path))


def test_a_folder_with_weights_gives_those(tmp_path: Path) -> None:
    saved = build_model("bert").model
    saved.save_pretrained(tmp_path)  # type: ignore[operator]
    case = build_model(str(tmp_path))
    assert case.task.name == "fill-mask"
    assert all(torch.equal(a, b) for a, b in zip(saved.parameters(), case.model.parameters(), strict=True))


def test_another_task_gives_another_class() -> None:
    case = build_model("bert", BuildOptions(task="text-classification"))
    assert type(case.model).__name__ == "BertForSequenceClassification"


def test_an_unknown_model_is_refused_with_close_names() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        build_model("lama")
    assert str(caught.value).startswith(
        "unknown model 'lama': it is no local folder, no architecture known here, and no hub id that can be reached; "
        "did you mean llama"
    )


def test_an_unknown_task_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgumentError, match="unknown task 'translation'; known are text2text-generation, "):
        build_model("t5", BuildOptions(task="translation"))


def test_a_task_that_the_model_cannot_do_is_refused_with_those_it_can() -> None:
    with pytest.raises(InvalidArgumentError, match=r"vit cannot do text-generation.*its tasks are .*image-classif"):
        build_model("vit", BuildOptions(task="text-generation"))


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-type"}))
    with pytest.raises(InvalidArgumentError, match="no-such-type"):
        build_model(str(tmp_path))


def test_every_offline_name_is_listed_once() -> None:
    names = model_names()
    assert len(names) == len(set(names))
    assert set(architectures()) <= set(names)
    assert "qwen2" in names


def test_the_tasks_of_a_model_type_come_with_the_particular_ones_first() -> None:
    assert next(iter(tasks_of("bart"))) == "text2text-generation"
    assert "feature-extraction" in tasks_of("vit")


def test_every_task_names_a_class_of_transformers() -> None:
    import transformers

    assert all(hasattr(transformers, task.auto_class) for task in tasks().values())


def test_layers_of_every_kind_are_kept() -> None:
    small = shrunk(CONFIG_MAPPING["gemma3_text"]())
    assert sorted(set(small.layer_types)) == ["full_attention", "sliding_attention"]
    assert small.num_hidden_layers == len(small.layer_types)


def test_every_combination_of_sizes_is_among_all_sets() -> None:
    case = build_model("mistral")
    combined = [one.sizes for one in all_input_sets(case) if one.name == "combined"]
    window = sliding_window(case)
    assert window is not None
    assert {(one["seq"], one["past"]) for one in combined} >= {(1, 0), (1, 1), (1, window + 4), (window + 4, 0)}
    assert any(one.get("padded") for one in combined)


def test_padding_is_among_the_new_tokens_where_there_is_no_past() -> None:
    inputs = build_model("llama").inputs({"batch": 2, "seq": 4, "past": 0, "padded": 2})
    assert inputs["attention_mask"].tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]
    assert inputs["position_ids"][0].tolist() == [0, 0, 0, 1]


def test_a_single_token_is_a_past() -> None:
    inputs = build_model("llama").inputs({"batch": 2, "seq": 1, "past": 1})
    assert inputs[PAST].layers[0].keys.shape[2] == 1
    assert inputs["attention_mask"].shape == (2, 2)


@pytest.mark.parametrize(
    "name",
    [
        "switch_transformers",
        "nllb-moe",
        "flint",
        "mllama",
        "swiftformer",
        "electra",
        "gemma3n_text",
        "nemotron_h",
        "zamba2",
        "gemma4_text",
        "inkling2_text",
        "inkling2_loop_text",
    ],
)
def test_a_small_model_has_every_kind_of_layer(name: str) -> None:
    config = CONFIG_MAPPING[name]()
    small = shrunk_with_every_kind(config, exceptions().get(name, {}))
    assert missing_kinds(kinds_of_config(config), kinds_of_config(small)) == []


def test_a_class_that_is_missing_stands_for_its_traits() -> None:
    one, other = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ELU()), torch.nn.Sequential(torch.nn.ReLU(inplace=True))
    missing = missing_kinds(kinds_of(one), kinds_of(other))
    assert list(map(str, missing)) == ["ELU", "ReLU with inplace=False"]


def test_of_the_layers_that_a_list_numbers_some_are_left_and_some_are_not() -> None:
    assert shrunk(CONFIG_MAPPING["qwen2_5_vl"]()).vision_config.fullatt_block_indexes == [1]
    assert shrunk(CONFIG_MAPPING["mllama"]()).text_config.cross_attention_layers == [1]


def test_layers_that_share_keys_and_values_come_behind_one_of_each_kind() -> None:
    small = shrunk(CONFIG_MAPPING["gemma3n_text"]())
    kinds, count = small.layer_types, small.num_kv_shared_layers
    assert 0 < count < len(kinds)
    assert set(kinds[-count:]) <= set(kinds[:-count])


def test_special_tokens_lie_in_the_small_vocabulary() -> None:
    small = shrunk(AutoConfig.for_model("bart"))
    special = [getattr(small, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")]
    assert all(0 <= token < small.vocab_size for token in special)


def test_changes_of_a_nested_configuration_are_made_in_it() -> None:
    small = shrunk(AutoConfig.for_model("clip"), {"vision_config": {"num_hidden_layers": 1}})
    assert small.vision_config.num_hidden_layers == 1
    assert small.vision_config.hidden_size == 64


def test_a_nested_configuration_keeps_what_the_outer_one_chose() -> None:
    decoder = shrunk(CONFIG_MAPPING["encoder-decoder"]()).decoder
    assert (decoder.is_decoder, decoder.add_cross_attention, decoder.num_hidden_layers) == (True, True, 2)


def test_a_model_that_sees_a_whole_text_keeps_no_cache() -> None:
    classifier = build_model("llama", BuildOptions(task="text-classification")).model
    assert not classifier.config.use_cache  # type: ignore[union-attr]
    assert build_model("llama").model.config.use_cache  # type: ignore[union-attr]


def test_a_model_with_several_classes_for_a_task_gets_the_first() -> None:
    model = build_model("deit", BuildOptions(task="image-classification")).model
    assert type(model).__name__ == "DeiTForImageClassification"


def test_a_shipped_name_stands_for_its_model_type_in_other_tasks() -> None:
    model = build_model("gemma3", BuildOptions(task="image-text-to-text")).model
    assert type(model).__name__ == "Gemma3ForConditionalGeneration"


INPUTS = {
    "an audio model continues a text": ("voxtral", "automatic-speech-recognition", PAST),
    "frames before features": ("speech_to_text", "automatic-speech-recognition", "input_features"),
    "features before frames": ("whisper", "automatic-speech-recognition", "input_features"),
    "samples": ("moonshine", "automatic-speech-recognition", "input_values"),
    "samples for the encoder": ("speech-encoder-decoder", "automatic-speech-recognition", "input_values"),
    "features that are embeddings": ("pop2piano", "automatic-speech-recognition", "input_features"),
    "an adaptor as wide as the text": ("fun_asr_nano", "automatic-speech-recognition", PAST),
    "a model without an encoder of texts": ("granite_speech", "text2text-generation", PAST),
    "characters": ("canine", "fill-mask", "input_ids"),
    "colours of a palette": ("imagegpt", "image-classification", "input_ids"),
}


@pytest.mark.parametrize(("name", "task", "expected"), INPUTS.values(), ids=INPUTS)
def test_the_inputs_have_the_form_that_the_model_takes(name: str, task: str, expected: str) -> None:
    if name not in models_of_task(task):
        task = "feature-extraction"
    case = build_model(name, BuildOptions(task=task))
    inputs = case.inputs({"batch": 2, "seq": 16, "past": 5, "source": 6})
    assert expected in inputs
    with torch.no_grad():
        case.model(**inputs)


def test_a_mask_is_left_out_where_it_is_not_taken() -> None:
    case = build_model("fnet", BuildOptions(task="fill-mask"))
    assert set(case.inputs(case.task.sizes)) == {"input_ids", "token_type_ids"}


@pytest.mark.parametrize("name", ["glm4v_text", "qwen2_vl_text", "cosmos3_edge_text"])
def test_sections_that_only_the_code_has_become_those_of_the_small_head(name: str) -> None:
    config = shrunk(CONFIG_MAPPING[name]())
    half = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    assert sum(config.rope_parameters["mrope_section"]) == half // 2


def test_heads_that_are_as_wide_as_their_two_parts_stay_so() -> None:
    config = shrunk(CONFIG_MAPPING["mistral4"]())
    assert config.head_dim == config.qk_head_dim == config.qk_nope_head_dim + config.qk_rope_head_dim


def test_a_single_token_gives_way_to_a_whole_text_and_a_picture_to_nothing() -> None:
    single = input_sets(build_model("bert"))[2]
    assert single.instead is not None
    assert single.instead.sizes == {"batch": 1, "seq": 6}
    assert input_sets(build_model("vit"))[2].instead is None


def test_what_a_model_has_against_its_configuration_is_said_by_the_model() -> None:
    with pytest.raises(ValueError, match="prediction_length"):
        build_model("autoformer", BuildOptions(task="feature-extraction"))


def test_a_batch_has_the_positions_that_generate_passes() -> None:
    inputs = build_model("gpt2", BuildOptions(task="text-generation")).inputs({"batch": 2, "seq": 3, "past": 5})
    assert inputs["attention_mask"][:, 0].tolist() == [0, 1]
    assert inputs["position_ids"].tolist() == [[4, 5, 6], [5, 6, 7]]


def test_a_model_of_sentence_pairs_gets_two_sentences() -> None:
    inputs = build_model("bert", BuildOptions(task="fill-mask")).inputs({"batch": 2, "seq": 5})
    assert inputs["token_type_ids"].tolist() == [[0, 0, 0, 1, 1]] * 2
    alone = build_model("distilbert", BuildOptions(task="fill-mask")).inputs({"batch": 2, "seq": 5})
    assert set(alone) == {"input_ids", "attention_mask"}
