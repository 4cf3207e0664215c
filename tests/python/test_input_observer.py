"""Dynamic shapes found out by watching calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

from exportguard import to_onnx, torch_export_patches, use_dyn_not_str
from exportguard.cache_names import cache_argument
from exportguard.errors import InvalidArgumentError
from exportguard.input_observer import observe_inputs
from exportguard.runners.onnxruntime import OrtSession

PAST = cache_argument(LlamaForCausalLM.forward) or ""


class Model(torch.nn.Module):
    def forward(self, x: Any, y: Any = None, count: int = 0) -> Any:
        return x


def test_axes_that_changed_are_named_and_equal_ones_share_a_name() -> None:
    model = Model()
    with observe_inputs(model) as seen:
        model(torch.zeros(2, 3), y=[torch.zeros(2, 5)])
        model(torch.zeros(4, 3), y=[torch.zeros(4, 6)])
    assert seen.dynamic_shapes() == {"x": {0: "d0"}, "y": [{0: "d0", 1: "d1"}]}


def test_an_integer_that_changed_is_named_too() -> None:
    model = Model()
    with observe_inputs(model) as seen:
        model(torch.zeros(2), count=1)
        model(torch.zeros(2), count=2)
    assert seen.dynamic_shapes() == {"x": None, "count": "d0"}


def test_calls_with_other_inputs_than_the_last_are_left_out() -> None:
    model = Model()
    with observe_inputs(model) as seen:
        model(torch.zeros(7, 3))
        model(torch.zeros(2, 3), y=torch.zeros(2))
        model(torch.zeros(2, 3), y=torch.zeros(4))
    assert seen.dynamic_shapes() == {"x": None, "y": {0: "d0"}}


def test_the_example_avoids_sizes_that_export_makes_constant() -> None:
    model = Model()
    with observe_inputs(model) as seen:
        model(torch.zeros(5, 3))
        model(torch.zeros(1, 3))
    args, _ = seen.example()
    assert args[0].shape == (5, 3)


def test_the_inputs_are_copies() -> None:
    model, x = Model(), torch.zeros(2)
    with observe_inputs(model) as seen:
        model(x)
    x += 1
    assert torch.equal(seen.calls[0].args[0], torch.zeros(2))


def test_nothing_is_watched_after_the_block() -> None:
    model = Model()
    with observe_inputs(model) as seen:
        model(torch.zeros(2))
    model(torch.zeros(3))
    assert len(seen.calls) == 1


def test_no_call_is_an_error() -> None:
    with observe_inputs(Model()) as seen:
        pass
    with pytest.raises(InvalidArgumentError, match="the model was not called"):
        seen.example()


def test_a_single_call_gives_no_dynamic_shapes() -> None:
    model = Model()
    with observe_inputs(model) as seen:
        model(torch.zeros(2))
    with pytest.raises(InvalidArgumentError, match=r"at least two calls.* 1 calls were seen"):
        seen.dynamic_shapes()


def test_what_generate_passes_is_observed_and_exported() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=20,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch_export_patches() as prepare:
        with observe_inputs(model) as seen:
            for batch, length in [(2, 4), (3, 6)]:
                tokens = torch.randint(3, 20, (batch, length))
                model.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)
        shapes = seen.dynamic_shapes()
        assert set(shapes[PAST][0]) == {0, 2}
        args, kwargs = seen.example()
        kwargs = prepare(kwargs)
        exported = torch.export.export(model, args, kwargs, dynamic_shapes=use_dyn_not_str(shapes), strict=False)
        run = exported.module()
        assert kwargs["input_ids"].shape[1] > 1
        for call in seen.calls[1:4]:
            expected = model(**prepare(dict(call.kwargs))).logits
            torch.testing.assert_close(run(**prepare(dict(call.kwargs))).logits, expected, rtol=1e-4, atol=1e-5)


def test_one_program_for_what_generate_passes_first_and_later() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=20,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with observe_inputs(model) as seen:
        for batch, length in [(2, 4), (3, 6)]:
            tokens = torch.randint(3, 20, (batch, length))
            model.generate(tokens, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert set(seen.dynamic_shapes()["input_ids"]) == {0, 1}

    args, kwargs = seen.example()
    session = OrtSession(to_onnx(model, args, kwargs, dynamic_shapes=seen.dynamic_shapes()).to_bytes())
    prompt = torch.randint(3, 20, (2, 5))
    expected = model.generate(prompt, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert torch.equal(generated(session, prompt, 4), expected)


def test_the_first_call_of_each_generation_has_a_past_of_as_many_texts() -> None:
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        head_dim=8, vocab_size=20, sliding_window=4, layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    model = Gemma3ForCausalLM(config).eval()
    with observe_inputs(model) as seen:
        for batch, length in [(2, 4), (4, 5), (3, 6)]:
            tokens = torch.randint(3, 20, (batch, length))
            model.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)
    shapes = seen.dynamic_shapes()
    batch = shapes["input_ids"][0]
    assert [layer[0] for layer in shapes[PAST]] == [batch] * 4

    args, kwargs = seen.example()
    assert all(axis.kept for axis in to_onnx(model, args, kwargs, dynamic_shapes=shapes, rewrite="auto").axes)


@pytest.mark.parametrize("cache", [None, "of no layers"])
def test_a_call_without_a_past_at_the_end_leaves_those_with_one(cache: str | None) -> None:
    config = LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=20,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    tokens = torch.randint(3, 20, (2, 5))
    with observe_inputs(model) as seen:
        model.generate(tokens, max_new_tokens=3, do_sample=False, pad_token_id=0)
        model(tokens[:1, :3], **{PAST: None if cache is None else DynamicCache()})
    past = seen.dynamic_shapes()[PAST]
    assert past == [{2: past[0][2]}] * 4


class Masked(torch.nn.Module):
    def forward(self, new: torch.Tensor, past: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.cat([past, new], dim=1) * mask


def test_an_axis_that_was_always_the_sum_of_two_others_is_named_so() -> None:
    model = Masked()
    with observe_inputs(model) as seen:
        for new, past in [(4, 0), (1, 4), (1, 5), (6, 0)]:
            model(torch.zeros(2, new), torch.zeros(2, past), torch.zeros(2, new + past))
    assert seen.dynamic_shapes() == {"new": {1: "d0"}, "past": {1: "d1"}, "mask": {1: "d0+d1"}}
    example = seen.example()[0]
    assert example[2].shape[1] == example[0].shape[1] + example[1].shape[1]


def test_a_sum_that_two_calls_show_may_be_chance() -> None:
    model = Masked()
    with observe_inputs(model) as seen:
        for new, past in [(4, 2), (1, 4)]:
            model(torch.zeros(2, new), torch.zeros(2, past), torch.zeros(2, new + past))
    assert seen.dynamic_shapes()["mask"] == {1: "d2"}


def generated(session: OrtSession, prompt: torch.Tensor, count: int) -> torch.Tensor:
    """The prompt and `count` more tokens, each the likeliest one, from the file alone."""
    tokens, new = prompt, prompt
    pasts = [name for name in session.input_names if name.startswith("past_key_values.")]
    past = dict.fromkeys(pasts, torch.zeros(prompt.shape[0], 2, 0, 8))
    for _ in range(count):
        feeds = {"input_ids": new, "attention_mask": torch.ones_like(tokens), **past}
        place = torch.arange(tokens.shape[1] - new.shape[1], tokens.shape[1])
        feeds |= {"position_ids": place.expand(new.shape), "cache_position": place}  # the latter to transformers 4
        feeds = {name: value for name, value in feeds.items() if name in session.input_names}
        outputs = dict(zip(session.output_names, session.run(feeds), strict=True))
        new = outputs["logits"][:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, new], dim=1)
        past = {name: outputs[name.replace("past_key_values", "present")] for name in pasts}
    return tokens
