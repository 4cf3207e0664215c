"""Untrained weights: every layer of a small model has its share in the output."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_leaves

from exportguard.models import BuildOptions, ModelCase, build_model
from exportguard.models.untrained import make_visible

DEEPEST = {
    "llama": "model.layers.1",
    "gemma3": "model.layers.1",
    "gpt2": "transformer.h.1",
    "bart": "model.encoder.layers.1",
    "t5": "encoder.block.1",
    "bert": "bert.encoder.layer.1",
    "vit": "vit.layers.1",
    "beit": "beit.layers.1",
    "convnext": "convnext.encoder.stages.3",
    "rt_detr": "model.encoder.lateral_convs.1",
}


def outputs(case: ModelCase) -> list[torch.Tensor]:
    with torch.no_grad():
        values = case.model(**case.inputs(case.task.sizes)).to_tuple()
    return [leaf.clone() for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


@pytest.mark.parametrize(("name", "layer"), DEEPEST.items(), ids=DEEPEST)
def test_the_deepest_layer_shows_in_the_output(name: str, layer: str) -> None:
    case = build_model(name)
    before = outputs(case)
    with torch.no_grad():
        for weight in case.model.get_submodule(layer).parameters():
            weight.mul_(weight.dim() < 2)
    changes = [float((a - b).abs().max() / a.abs().mean()) for a, b in zip(before, outputs(case), strict=True)]
    assert max(changes) > 0.5


def test_scores_are_not_decided_by_rounding() -> None:
    scores = outputs(build_model("rt_detr", BuildOptions(task="object-detection")))[0].flatten().sort().values
    assert scores.std() > 0.1
    assert (scores.diff() == 0).double().mean() < 0.01


def size(value: torch.Tensor) -> float:
    return float(value.detach().square().mean().sqrt())


MATRICES = {
    "linear": (torch.nn.Linear(64, 32), "weight", 64),
    "convolution": (torch.nn.Conv2d(8, 4, 3), "weight", 8 * 3 * 3),
    "depthwise convolution": (torch.nn.Conv1d(8, 8, 4, groups=8), "weight", 4),
    "embedding": (torch.nn.Embedding(500, 64), "weight", 64),
    "attention": (torch.nn.MultiheadAttention(16, 2), "in_proj_weight", 3 * 16),
}


@pytest.mark.parametrize(("module", "name", "summands"), MATRICES.values(), ids=MATRICES)
def test_a_matrix_keeps_the_size_of_its_input(module: torch.nn.Module, name: str, summands: int) -> None:
    torch.nn.init.normal_(module.get_parameter(name), std=1e-3)
    make_visible(module, seed=0)
    assert size(module.get_parameter(name)) == pytest.approx(summands**-0.5)


def test_experts_in_one_parameter_are_matrices() -> None:
    module = torch.nn.ParameterDict({"experts": 0.01 * torch.randn(4, 64, 32)})
    make_visible(module, seed=0)
    assert size(module["experts"]) == pytest.approx(1 / 8)


VECTORS = {
    "a bias of zeros": ("bias", torch.zeros(1000), 0.02),
    "a scale of ones": ("weight", torch.ones(1000), 1.0),
    "a shift of a scale": ("weight", torch.zeros(1000), 0.02),
    "a scale of nearly nothing": ("gamma", torch.full((1000,), 1e-6), 0.5),
    "a random scale of nearly nothing": ("weight", 0.01 * torch.randn(1000), 1.0),
    "a closed gate": ("gate", torch.zeros(1), 0.5),
    "a temperature": ("temperature", torch.full((1,), 0.07), 0.07),
    "time constants": ("decay", 0.01 * torch.arange(10.0), 0.053),
}


@pytest.mark.parametrize(("name", "value", "expected"), VECTORS.values(), ids=VECTORS)
def test_a_vector_gets_a_size_that_shows(name: str, value: torch.Tensor, expected: float) -> None:
    module = torch.nn.ParameterDict({name: value.clone()})
    make_visible(module, seed=0)
    assert size(module[name]) == pytest.approx(expected, rel=0.1)


def test_larger_weights_and_shared_ones_are_left() -> None:
    embedding, head = torch.nn.Embedding(10, 4), torch.nn.Linear(4, 10, bias=False)
    head.weight = embedding.weight
    before = embedding.weight.detach().clone()
    assert size(before) > 0.5
    make_visible(torch.nn.Sequential(embedding, head), seed=0)
    assert torch.equal(head.weight, before)


@pytest.mark.parametrize("name", ["encodec", "mimi"])
def test_codebooks_have_entries_that_differ(name: str) -> None:
    case = build_model(name, BuildOptions(task="feature-extraction"))
    with torch.no_grad():
        codes = case.model(**case.inputs(case.task.sizes)).audio_codes
    assert len(codes.unique()) > 4
