"""Tensors that attributes and conversions give, in branches and loops on tensor data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from exportguard import to_onnx

Look = Callable[[torch.Tensor], torch.Tensor]

LOOKS: dict[str, Look] = {
    "x.T": lambda x: x.T.softmax(0).T,
    "x.mT": lambda x: x.mT.softmax(0).mT,
    "x.H": lambda x: x.H.cumsum(1).H,
    "x.mH": lambda x: x.mH.cumsum(1).mH,
    "x.real": lambda x: x.real * 2,
    "x.T of x.T": lambda x: x.T.T + 1,
    "x.type(dtype)": lambda x: x.type(torch.float64).exp().type(torch.float32),
    "x.type(dtype=)": lambda x: x.type(dtype=torch.float16).type(x.dtype),
    "x.type(name)": lambda x: x.type("torch.DoubleTensor").type(torch.float32),
    "x.type()": lambda x: x * len(x.type()),
    "x.type_as(y)": lambda x: x.type_as(torch.zeros(1, dtype=torch.float16)).float(),
    "written through x.T": lambda x: writes(x.clone()),
}


def writes(x: torch.Tensor) -> torch.Tensor:
    x.T[0] = 3.0
    return x


class Branch(torch.nn.Module):
    def __init__(self, look: Look) -> None:
        super().__init__()
        self.look = look

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.look(x[0]) * 2 if x.sum() > 0 else self.look(x[0] + 1)


class Loop(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[0])
        for i in range(x.shape[0]):
            state = state * 0.5 + self.look(x[i])
        return state


@pytest.mark.parametrize("kind", [Branch, Loop], ids=["branch", "loop"])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_what_an_attribute_gives_is_made_there(kind: type[Branch], look: Look) -> None:
    torch.manual_seed(0)
    model = kind(look).eval()
    shapes = ({0: "length", 1: "rows"},)
    onnx = to_onnx(model, (torch.rand(4, 3, 2),), dynamic_shapes=shapes, rewrite="auto")
    for length, rows, sign in ((4, 3, 1), (7, 5, -1), (2, 1, 1)):
        x = torch.rand(length, rows, 2) * sign
        got = onnx.run({onnx.inputs[0].name: x})[onnx.outputs[0].name]
        torch.testing.assert_close(torch.as_tensor(got), model(x), rtol=1e-4, atol=1e-5)


def test_a_conversion_behind_a_branch_that_changed_what_it_reads_is_right() -> None:
    class Converts(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = x.clone()
            other = kept
            if x.sum() > 0:
                other += 1
            return kept.type(torch.float64)

    model = Converts().eval()
    onnx = to_onnx(model, (torch.ones(3),), dynamic_shapes=({0: "n"},), rewrite="auto")
    for x in (torch.ones(4), -torch.ones(5)):
        assert torch.equal(torch.as_tensor(onnx.run({"x": x})[onnx.outputs[0].name]), model(x))
