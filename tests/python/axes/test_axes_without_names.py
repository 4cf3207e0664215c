"""Axes that no name asks for: which of them are of one size is for the export to find, and for the model to say."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from exportguard import AxisError, OnnxModel, to_onnx
from exportguard.axes.bound import Kind

HIDDEN = 8


class PassesOver(torch.nn.Module):
    """Attention that takes a mask of ones for none, as that of transformers does: such a mask may have any size."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(16, HIDDEN)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states = self.words(ids)[:, None]
        if not torch.compiler.is_exporting() and bool(mask.all()):
            return torch.nn.functional.scaled_dot_product_attention(states, states, states)
        rows = torch.arange(ids.shape[0])[:, None]
        seen = mask[rows, torch.arange(mask.shape[1])[None]].bool()[:, None, None, :]
        return torch.nn.functional.scaled_dot_product_attention(states, states, states, attn_mask=seen)


class Counts(torch.nn.Module):
    """Takes no other number of ids than its data says, as a model of texts and pictures: no size can be tried."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(16, HIDDEN)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_exporting() and int(ids.sum()) != 45:
            raise ValueError("not the number of pictures that the texts have places for")
        return self.words(ids) * mask[..., None]


class Compares(torch.nn.Module):
    """Does something else where the sizes differ."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return ids * mask if ids.shape[1] == mask.shape[1] else ids + mask.sum(1, keepdim=True)


IDS = torch.tensor([[1, 2, 3, 4, 5], [5, 6, 6, 6, 7]])
MASK = torch.ones(2, 5, dtype=torch.int64)


def exported(model: torch.nn.Module, first: object, second: object) -> OnnxModel:
    shapes = ({0: Dim.DYNAMIC, 1: first}, {0: Dim.DYNAMIC, 1: second})
    return to_onnx(model.eval(), (IDS, MASK), dynamic_shapes=shapes)


def kinds(model: OnnxModel) -> set[Kind]:
    return {bound.kind for axis in model.axes for bound in axis.bounds}


@pytest.mark.parametrize("hint", [Dim.DYNAMIC, Dim.AUTO])
def test_sizes_that_only_a_mask_of_ones_may_have_are_no_bound(hint: object) -> None:
    model = PassesOver().eval()
    made = exported(model, hint, hint)
    assert all(axis.kept for axis in made.axes)
    for batch, length in ((1, 1), (2, 1), (1, 7), (3, 4)):
        ids, mask = torch.randint(0, 16, (batch, length)), torch.ones(batch, length, dtype=torch.int64)
        mask[:, : length // 2] = 0
        (got,) = made.run({"ids": ids, "mask": mask}).values()
        torch.testing.assert_close(got, model(ids, mask))


def test_axes_that_an_operator_wants_equal_are_so_where_nothing_can_be_tried() -> None:
    made = exported(Counts(), Dim.DYNAMIC, Dim.DYNAMIC)
    assert Kind.ALIKE in kinds(made)
    assert all(axis.kept for axis in made.axes)


def test_names_that_nothing_shows_to_be_equal_are_refused() -> None:
    with pytest.raises(
        AxisError, match=r"(?s)other sizes could not be tried.*give axes that are always of one size one n"
    ):
        exported(Counts(), "words", "seen")


@pytest.mark.parametrize("asked", [(Dim.DYNAMIC, Dim.DYNAMIC), (Dim.AUTO, Dim.AUTO), ("words", "seen")])
def test_what_a_model_does_where_its_sizes_differ_is_not_left_out(asked: tuple[object, object]) -> None:
    with pytest.raises(AxisError, match="does something else than the model"):
        exported(Compares(), *asked)
