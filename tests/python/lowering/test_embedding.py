from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

from exportguard import to_onnx

if TYPE_CHECKING:
    from conftest import Check

MODES = ("sum", "mean", "max")


def test_embedding_over_dynamic_and_empty_sequences(check: Check) -> None:
    check(
        torch.nn.Embedding(7, 3, padding_idx=0),
        [torch.tensor([[0, 1, 6], [2, 2, 3]])],
        others=[[torch.tensor([[5]])], [torch.zeros(2, 0, dtype=torch.int64)]],
    )


def test_embedding_with_a_bound_on_the_norm(check: Check) -> None:
    check(lambda i, w: functional.embedding(i, w * 1, max_norm=1.0), [torch.tensor([1, 3, 3]), torch.rand(5, 4) * 2])


@pytest.mark.parametrize("mode", MODES)
def test_bags_of_one_size(mode: str, check: Check) -> None:
    check(torch.nn.EmbeddingBag(7, 3, mode=mode), [torch.tensor([[0, 1, 6], [2, 2, 3]])])


@pytest.mark.parametrize("mode", MODES)
def test_bags_between_offsets_some_of_them_empty(mode: str, check: Check) -> None:
    indices, offsets = torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([0, 2, 2, 5])
    check(torch.nn.EmbeddingBag(7, 3, mode=mode), [indices, offsets])


@pytest.mark.parametrize("mode", MODES)
def test_padding_does_not_count_in_a_bag(mode: str, check: Check) -> None:
    bags = torch.nn.EmbeddingBag(7, 3, mode=mode, include_last_offset=True, padding_idx=1)
    check(bags, [torch.tensor([1, 2, 1, 1, 5, 3]), torch.tensor([0, 2, 4, 6])])


def test_a_bag_with_a_weight_for_each_sample(check: Check) -> None:
    check(
        lambda i, w, o, s: functional.embedding_bag(i, w, o, mode="sum", per_sample_weights=s),
        [torch.tensor([0, 1, 2, 3, 4, 5]), torch.rand(7, 3), torch.tensor([0, 2, 2, 5]), torch.rand(6)],
    )


def test_of_rows_with_nan_the_first_alone_makes_a_largest_of_nan(check: Check) -> None:
    nan = float("nan")
    weight = torch.tensor([[1.0, 2.0], [nan, 5.0], [3.0, nan], [-7.0, -8.0]])
    check(
        lambda w, i, o: functional.embedding_bag(i, w, o, mode="max", padding_idx=3),
        [weight, torch.tensor([0, 1, 1, 0, 2, 3, 1, 3]), torch.tensor([0, 2, 4, 5, 5])],
        others=[[weight.nan_to_num(0), torch.tensor([3, 2]), torch.tensor([0, 1, 1, 1, 2])]],
    )


@pytest.mark.parametrize("mode", MODES)
def test_what_bags_have_for_gradients_alone_stops_no_export(mode: str) -> None:
    bags = torch.nn.EmbeddingBag(7, 3, mode=mode, include_last_offset=True).eval()
    example = torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([0, 2, 4, 6])
    model = to_onnx(bags, example, dynamic_shapes=({0: "rows"}, {0: "bags"}))
    for offsets in ([0, 6], [0, 1, 1, 5, 6]):
        given = example[0], torch.tensor(offsets)
        (got,) = model.run({value.name: x for value, x in zip(model.inputs, given, strict=True)}).values()
        torch.testing.assert_close(got, bags(*given).detach())


@pytest.mark.parametrize("padding", [-1, -3, 4, 0, None])
@pytest.mark.parametrize("mode", MODES)
def test_a_negative_padding_of_bags_counts_from_the_end_of_the_table(
    mode: str, padding: int | None, check: Check
) -> None:
    """Of this overload alone, which `torch.export` records; the others have -1 for none."""
    check(
        lambda i, w, o: functional.embedding_bag(i, w, o, mode=mode, padding_idx=padding),
        [torch.tensor([4, 1, 1, 0, 4, 4]), torch.rand(5, 3), torch.tensor([0, 3])],
        others=[[torch.tensor([2, 4, 3, 0, 4, 0, 4]), torch.rand(5, 3), torch.tensor([0, 3, 5])]],
    )
