"""`ctc_loss` of any number of steps, sequences and labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import ctc_loss

from called import CalledWithAll
from exportguard import to_onnx

Function = Callable[..., torch.Tensor]

FUNCTIONS: list[Function] = [
    lambda p, t, n, m: ctc_loss(p.log_softmax(-1), t, n, m, reduction="none"),
    lambda p, t, n, m: ctc_loss(p.log_softmax(-1), t, n, m, blank=4, reduction="none"),
    lambda p, t, n, m: ctc_loss(p.log_softmax(-1), t, n, m, reduction="sum", zero_infinity=True),
    lambda p, t, n, m: torch.nn.CTCLoss(zero_infinity=True)(p.log_softmax(-1), t, n, m),
    lambda p, t, n, m: ctc_loss(p.log_softmax(-1), t.flatten(), n, m * 0 + t.shape[1], reduction="none"),
    lambda p, t, n, m: ctc_loss(
        p.log_softmax(-1), t.masked_select(torch.arange(t.shape[1]) < m[:, None]), n, m, reduction="none"
    ),
    lambda p, t, n, m: ctc_loss(p[:, 0].log_softmax(-1), t[0], n[0], m[0], reduction="none"),
]


def calls(steps: int, batch: int, labels: int) -> tuple[torch.Tensor, ...]:
    """Scores, labels, 1 among which stands beside itself, and lengths of the two; one sequence has no label."""
    lengths = torch.randint(0, labels + 1, (batch,))
    lengths[0] = labels
    lengths[-1] = 0 if batch > 1 else labels
    return (
        torch.randn(steps, batch, 5),
        torch.randint(1, 4, (batch, labels)),
        torch.randint(max(steps - 3, 1), steps + 1, (batch,)),
        lengths,
    )


def sizes() -> Iterator[tuple[int, int, int]]:
    yield from [(8, 3, 3), (5, 1, 2), (12, 4, 5), (3, 2, 3), (1, 2, 1)]


def aligns_sequences_of_any_length() -> None:
    axes = ({0: "steps", 1: "batch"}, {0: "batch", 1: "labels"}, {0: "batch"}, {0: "batch"})
    torch.manual_seed(0)
    for function in FUNCTIONS:
        model = to_onnx(CalledWithAll(function).eval(), calls(8, 3, 3), dynamic_shapes=(axes,))
        for size in sizes():
            given = calls(*size)
            (got,) = model.run({value.name: x for value, x in zip(model.inputs, given, strict=True)}).values()
            torch.testing.assert_close(torch.as_tensor(got), function(*given), rtol=1e-4, atol=1e-5)
    impossible = ctc_loss(torch.randn(1, 1, 5).log_softmax(-1), torch.ones(1, 3).long(), (1,), (3,), reduction="none")
    assert impossible.item() == math.inf, "a row that is longer than the steps has no alignment, which the sizes show"


PROGRAMS = {"losses of alignments": aligns_sequences_of_any_length}
