"""Numbers that torch refuses: where a file stops as well, where it counts from the end, and that there is no third."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensors import floats, indices
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from exportguard import LoweringError, OnnxModel, to_onnx

Called = Callable[[torch.Tensor], torch.Tensor]

ROWS, LISTED = floats(4, 3), indices(0, 1, 3, 2)


def bags(mode: str, **keywords: Any) -> Called:
    return lambda offsets: functional.embedding_bag(LISTED, keywords.get("rows", ROWS), offsets, mode=mode, **{
        name: value for name, value in keywords.items() if name != "rows"
    })  # fmt: skip


def packed(lengths: torch.Tensor) -> torch.Tensor:
    sequences = pack_padded_sequence(ROWS[None].expand(2, 4, 3), lengths, batch_first=True)
    padded: torch.Tensor = pad_packed_sequence(sequences, batch_first=True)[0]
    return padded


OFFSETS = [indices(0, 3, 2), indices(1, 2, 3), indices(0, 2, 5), indices(0, -1, 2), indices(0, 4, 2), indices(0, 4, 4)]

#: A call, what it takes, and what is to be tried: a file answers as eager, or both stop.
CHECKED: dict[str, tuple[Called, torch.Tensor, list[torch.Tensor]]] = {
    "bags, sum": (bags("sum"), indices(0, 2, 3), OFFSETS),
    "bags, mean": (bags("mean"), indices(0, 2, 3), OFFSETS),
    "bags, max": (bags("max"), indices(0, 2, 3), OFFSETS),
    "bags, sum with padding": (bags("sum", padding_idx=1), indices(0, 2, 3), OFFSETS),
    "bags of float64": (bags("sum", rows=ROWS.double()), indices(0, 2, 3), OFFSETS),
    "bags, mean with padding": (bags("mean", padding_idx=1), indices(0, 2, 3), OFFSETS),
    "bags, mean of float64": (bags("mean", rows=ROWS.double()), indices(0, 2, 3), OFFSETS),
    "bags, max with padding": (bags("max", padding_idx=1), indices(0, 2, 3), OFFSETS),
    "bincount": (lambda x: torch.bincount(x, minlength=5), indices(0, 1, 2, 2), [indices(-1, 0, 0, 0)]),
    "repeats": (lambda x: torch.repeat_interleave(ROWS[:2], x, 0), indices(1, 2), [indices(-1, 3), indices(2, -2)]),
    "repeated places": (torch.repeat_interleave, indices(1, 0, 2), [indices(-1, 3, 1)]),
    "lengths of segments": (
        lambda x: torch.segment_reduce(ROWS, "sum", lengths=x, axis=0),
        indices(1, 3),
        [indices(4, 0), indices(2, 3), indices(-1, 5), indices(1, 1)],
    ),
    "unsafe lengths of segments": (
        lambda x: torch.segment_reduce(ROWS, "sum", lengths=x, axis=0, unsafe=True),
        indices(1, 3),
        [indices(1, 1)],
    ),
    "offsets of segments": (
        lambda x: torch.segment_reduce(ROWS, "sum", offsets=x, axis=0),
        indices(0, 1, 4),
        [indices(0, 3, 2), indices(0, 1, 3), indices(1, 2, 4)],
    ),
    "packed sequences": (packed, indices(4, 2), [indices(4, 4), indices(2, 4), indices(5, 2), indices(4, 0)]),
    "rows by a list": (lambda x: ROWS[x], indices(0, 1), [indices(-1, -4), indices(4, 0), indices(-5, 0)]),
    "take": (ROWS.take, indices(0, 11), [indices(-1, -12), indices(12, 0), indices(-13, 0)]),
    "written rows": (
        lambda x: ROWS.index_put((x,), torch.ones(())), indices(0, 1), [indices(-1, 0), indices(4, 0), indices(-5, 0)]
    ),
    "counts of repetitions": (lambda x: ROWS.repeat_interleave(x, 0), indices(0, 1, 2, 2), [indices(-1, 0, 0, 0)]),
}  # fmt: skip

#: Calls that refuse indices below zero in eager, where a file counts those down to minus the size from the end.
COUNTED_FROM_THE_END: dict[str, Called] = {
    "embedding": lambda x: functional.embedding(x, ROWS),
    "index_select": lambda x: ROWS.index_select(0, x),
    "gather": lambda x: ROWS.gather(0, x[:, None]),
    "scatter": lambda x: ROWS.scatter(0, x[:, None], 9.0),
    "scatter_add": lambda x: ROWS.scatter_add(0, x[:, None], torch.ones(2, 1)),
    "scatter_reduce": lambda x: ROWS.scatter_reduce(0, x[:, None], torch.ones(2, 1), "amax"),
    "index_add": lambda x: ROWS.index_add(0, x, torch.ones(2, 3)),
    "index_copy": lambda x: ROWS.index_copy(0, x, torch.ones(2, 3)),
    "a bag's rows": lambda x: functional.embedding_bag(x, ROWS, indices(0, 1), mode="sum"),
    "targets": lambda x: functional.nll_loss(ROWS.T[:2], x, reduction="none"),
}


def model_of(function: Called, given: torch.Tensor) -> OnnxModel:
    module = type("Module", (torch.nn.Module,), {"forward": lambda _, x: function(x)})()
    return to_onnx(module.eval(), (given,))


def answered(function: Callable[[torch.Tensor], Any], given: torch.Tensor) -> torch.Tensor | None:
    """None for what stops, whatever it says."""
    try:
        return torch.as_tensor(function(given))
    except Exception:
        return None


def file_of(model: OnnxModel) -> Callable[[torch.Tensor], Any]:
    return lambda given: next(iter(model.run({model.inputs[0].name: given}).values()))


@pytest.mark.parametrize("name", CHECKED)
def test_a_file_answers_as_eager_or_stops(name: str) -> None:
    function, example, others = CHECKED[name]
    run = file_of(model_of(function, example))
    torch.testing.assert_close(torch.as_tensor(run(example)), function(example))
    for given in others:
        got, expected = answered(run, given), answered(function, given)
        assert got is None or expected is not None, f"{given.tolist()} gives {got}, and eager stops"
        if got is not None:
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", COUNTED_FROM_THE_END)
def test_indices_below_zero_count_from_the_end(name: str) -> None:
    function, size = COUNTED_FROM_THE_END[name], 4
    run = file_of(model_of(function, indices(0, 1)))
    for beyond in (size, -size - 1):
        assert answered(run, indices(beyond, 0)) is None
        assert answered(function, indices(beyond, 0)) is None
    torch.testing.assert_close(torch.as_tensor(run(indices(-1, 0))), function(indices(size - 1, 0)))


def test_offsets_in_the_file_are_checked_once() -> None:
    model = model_of(lambda x: functional.embedding_bag(x, ROWS, indices(0, 2), mode="sum"), indices(0, 1, 3))
    assert model.text().count("Gather(") == 1  # the rows


#: What a lowering has to know: of a size it took what stands for "not given", without a word.
OF_SIZES: dict[str, Called] = {
    "correction": lambda x: x.var(0, correction=x.shape[0] // 2),
    "correction of a root": lambda x: x.std(0, correction=x.shape[0] - 2),
    "order": lambda x: torch.linalg.vector_norm(x, ord=x.shape[0] % 4 + 1),
    "order of normalization": lambda x: functional.normalize(x, p=x.shape[0] % 3 + 1.0),
}


@pytest.mark.parametrize("name", OF_SIZES)
def test_a_number_that_sizes_make_is_no_default(name: str) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return OF_SIZES[name](x)

    with pytest.raises(LoweringError, match="must be a number known at conversion"):
        to_onnx(Model().eval(), (floats(6, 3),), dynamic_shapes=({0: "n"},))
