"""What a call of a module writes into memory that is older, for some sizes or data alone, and what it returns of it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

from exportguard import to_onnx
from exportguard.rewrites.state import KeptModule
from exportguard.source.errors import RewriteError


class Holder(torch.nn.Module):
    """Writes into one of what it holds, and returns that, where `is_asked` says so."""

    def __init__(self, is_asked: Callable[[torch.Tensor], bool], write: Callable[[Holder], torch.Tensor]) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.5, -0.25, 1.0, 0.25]))
        self.plain = torch.arange(4.0)
        self.held = {"rows": [torch.ones(4)]}
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.is_asked, self.write = is_asked, write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.write(self) if self.is_asked(x) else x[0]


ASKED: dict[str, Callable[[torch.Tensor], bool]] = {
    "sizes": lambda x: x.shape[0] > 3,
    "data": lambda x: bool(x[0, 0] > 0),
}

WRITES: dict[str, Callable[[Holder], torch.Tensor]] = {
    "a buffer": lambda model: model.scale.mul_(0.5),
    "a view of a buffer": lambda model: model.scale[1:].add_(2),
    "the data of a buffer": lambda model: model.scale.data.mul_(3),
    "a plain tensor": lambda model: model.plain.add_(1),
    "a tensor in a list": lambda model: model.held["rows"][0].sub_(1),
    "one of another size": lambda model: model.plain.resize_(3).fill_(2),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("is_asked", ASKED.values(), ids=ASKED)
def test_what_some_calls_write_is_put_back_and_what_they_return_stays(
    is_asked: Callable[[torch.Tensor], bool], write: Callable[[Holder], torch.Tensor]
) -> None:
    model = Holder(is_asked, write)
    before = copy.deepcopy(model)
    kept = KeptModule(model)
    for rows, sign in ((2, -1), (2, -1), (5, 1), (2, -1), (5, 1)):
        x = sign * torch.ones(rows, 4)
        expected = copy.deepcopy(before)(x)
        with kept.call() as module:
            found = kept.left(module(x))
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(model.scale, before.scale)
        torch.testing.assert_close(model.plain, before.plain)
        torch.testing.assert_close(model.held["rows"], before.held["rows"])


def test_a_weight_that_some_calls_write_into_is_told() -> None:
    @torch.no_grad()
    def write(model: Holder) -> torch.Tensor:
        return model.weight.mul_(2)

    kept = KeptModule(Holder(ASKED["sizes"], write))
    with kept.call() as module:
        module(torch.ones(2, 4))
    with pytest.raises(RewriteError, match="its weight weight where other sizes"), kept.call() as module:
        module(torch.ones(5, 4))


class ReturnsItsBuffer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.5, -0.25, 1.0, 0.25]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = x.sum(0)
        if w.max() > 0:
            w = w * 2
        else:
            w = self.scale
            self.scale *= 0.5
        return w


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("seed", range(4))
def test_a_branch_that_returns_the_buffer_it_writes_into_is_compared_with_what_it_was(sign: int, seed: int) -> None:
    torch.manual_seed(seed)
    x = sign * torch.rand(3, 4)
    onnx = to_onnx(ReturnsItsBuffer(), (x,), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for other in (x, -x, torch.rand(5, 4), -torch.rand(1, 4)):
        found = next(iter(onnx.run({"x": other}).values()))
        torch.testing.assert_close(found, ReturnsItsBuffer()(other))
