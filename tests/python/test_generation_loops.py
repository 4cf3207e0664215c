"""A sequence-to-sequence model in two files, for the first step and for those behind it, generates what it does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from exportguard import ExportOptions, to_onnx
from exportguard.cache_names import cache_argument
from exportguard.guard import torch_export_patches
from exportguard.models import BuildOptions, ModelCase, build_model
from exportguard.observed_shapes import observed_dynamic_shapes
from exportguard.runners.onnxruntime import OrtSession

COUNT = 4
MODELS = ("t5", "bart")


def first_inputs(case: ModelCase, sizes: Any) -> dict[str, Any]:
    """Those of a step behind a past, without the past."""
    past = cache_argument(case.model.forward)
    return {name: value for name, value in case.inputs(sizes).items() if name != past}


def session(case: ModelCase, make_inputs: Any) -> OrtSession:
    sizes = case.task.sizes
    with torch_export_patches(patch=False):
        shapes = observed_dynamic_shapes(make_inputs, sizes)
    model = to_onnx(case.model, (), make_inputs(sizes), dynamic_shapes=shapes, options=ExportOptions())
    return OrtSession(model.to_bytes())


def run(session: OrtSession, feeds: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    values = {name: feeds[name] for name in session.input_names}
    return dict(zip(session.output_names, session.run(values), strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_what_the_first_file_returns_is_what_the_second_takes(name: str) -> None:
    case = build_model(name, BuildOptions(task="text2text-generation"))
    first, later = session(case, lambda sizes: first_inputs(case, sizes)), session(case, case.inputs)
    source = first_inputs(case, {"batch": 2, "source": 7, "seq": 2, "past": 3})
    given = {"input_ids": source["input_ids"], "attention_mask": source["attention_mask"]}
    start = int(case.model.config.decoder_start_token_id)  # type: ignore[union-attr, arg-type]

    tokens = torch.full((2, 1), start)
    outputs = run(first, {**given, "decoder_input_ids": tokens})
    for _ in range(COUNT - 1):
        new = outputs["logits"][:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, new], dim=1)
        past = {one.replace("present", "past_key_values"): value for one, value in outputs.items() if "present" in one}
        outputs = run(later, {**given, **past, "decoder_input_ids": new})
    tokens = torch.cat([tokens, outputs["logits"][:, -1].argmax(-1, keepdim=True)], dim=1)

    case.model.generation_config.forced_eos_token_id = None  # type: ignore[union-attr]
    config = transformers.GenerationConfig(
        max_new_tokens=COUNT, min_new_tokens=COUNT, do_sample=False, num_beams=1, decoder_start_token_id=start,
        eos_token_id=None, pad_token_id=0, use_cache=True,
    )  # fmt: skip
    expected = case.model.generate(**given, generation_config=config)  # type: ignore[operator]
    assert torch.equal(tokens, expected)
