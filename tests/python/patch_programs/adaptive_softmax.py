"""`nn.AdaptiveLogSoftmaxWithLoss` of any number of rows, in whatever clusters their classes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from called import CalledWithAll
from exportguard import to_onnx

CLASSES = 20


def layer() -> torch.nn.AdaptiveLogSoftmaxWithLoss:
    torch.manual_seed(0)
    return torch.nn.AdaptiveLogSoftmaxWithLoss(16, CLASSES, [5, 12], head_bias=True).eval()


def targets() -> Iterator[torch.Tensor]:
    """Of all clusters, of one each, of a single row and of none."""
    yield from (torch.tensor([0, 19, 6, 7, 4, 12]), torch.tensor([13, 14]), torch.tensor([3]), torch.tensor([11]))
    yield torch.zeros(0, dtype=torch.int64)


def _is_right(function: Callable[..., object], axes: tuple[dict[int, str], ...]) -> None:
    def given(target: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (3 * torch.randn(target.shape[0], 16), target)[: len(axes)]

    model = to_onnx(CalledWithAll(function).eval(), given(torch.arange(4)), dynamic_shapes=(axes,))
    for target in targets():
        inputs = given(target)
        got = model.run({value.name: x for value, x in zip(model.inputs, inputs, strict=True)}).values()
        for made, wanted in zip(got, torch.utils._pytree.tree_leaves(function(*inputs)), strict=True):
            torch.testing.assert_close(torch.as_tensor(made), wanted, equal_nan=True)


def adds_up_losses() -> None:
    clusters = layer()
    _is_right(lambda x, target: tuple(clusters(x, target)), ({0: "rows"}, {0: "rows"}))
    of_one = CalledWithAll(lambda x: tuple(clusters(x, torch.tensor(7)))).eval()
    model, one = to_onnx(of_one, (torch.randn(16),)), torch.randn(16)
    for made, wanted in zip(model.run({model.inputs[0].name: one}).values(), of_one(one), strict=True):
        torch.testing.assert_close(torch.as_tensor(made), wanted)


def predicts_classes() -> None:
    clusters = layer()
    _is_right(lambda x: (clusters.predict(x), clusters.log_prob(x)), ({0: "rows"},))


PROGRAMS = {
    "losses of clusters of classes": adds_up_losses,
    "predictions of clusters of classes": predicts_classes,
}
