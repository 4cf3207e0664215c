"""Which of equal values an operator takes is left open by torch: another choice is no divergence, a wrong one is."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import exportguard

Choose = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

CHOICES: dict[str, Choose] = {
    "sort": lambda x: tuple(x.sort(-1)),
    "sort, descending, rows": lambda x: tuple(x.sort(0, descending=True)),
    "argsort": lambda x: (x, x.argsort(-1)),
    "topk": lambda x: tuple(x.topk(9)),
    "topk of rows, smallest": lambda x: tuple(x.topk(2, dim=0, largest=False)),
    "topk, not sorted": lambda x: tuple(x.topk(9, sorted=False)),
    "kthvalue": lambda x: tuple(x.kthvalue(5, dim=-1)),
    "kthvalue, keepdim": lambda x: tuple(x.kthvalue(2, dim=0, keepdim=True)),
    "median": lambda x: tuple(x.median(-1)),
    "mode": lambda x: tuple(x.mode(-1)),
}


class Chosen(torch.nn.Module):
    """Positions that are used as one uses them: what they lead to does not depend on the choice, and is returned."""

    def __init__(self, choose: Choose) -> None:
        super().__init__()
        self.choose = choose

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ranks = x.to(torch.int64).to(torch.float32)  # many are equal
        values, positions = self.choose(ranks)
        return values.sum(), positions * 1.5


def case(name: str) -> tuple[torch.nn.Module, torch.Tensor, exportguard.OnnxModel]:
    torch.manual_seed(1)
    module, x = Chosen(CHOICES[name]).eval(), 5 * torch.rand(4, 60)
    return module, x, exportguard.to_onnx(module, (x,), opset=23)


@pytest.mark.parametrize("name", CHOICES)
def test_another_choice_among_equal_values_is_no_divergence(name: str) -> None:
    module, x, model = case(name)
    report = exportguard.find_divergence(module, model, (x,))
    assert report.agrees, str(report)


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("offset", [1, 100])
def test_a_wrong_choice_is_named(name: str, offset: int) -> None:
    """Another place of the row, and one that is beyond it."""
    module, x, model = case(name)
    proto = onnx.load_from_string(model.to_bytes())
    last = next(node for node in proto.graph.node if proto.graph.output[1].name in node.output)
    made = {output: node for node in proto.graph.node for output in node.output}
    positions = last.input[0]
    while made[positions].op_type == "Cast":
        positions = made[positions].input[0]
    maker = made[positions]
    for node in proto.graph.node:
        node.input[:] = ["moved" if name == positions else name for name in node.input]
    maker.output[list(maker.output).index(positions)] = "kept"
    proto.graph.initializer.append(numpy_helper.from_array(torch.tensor(offset).numpy(), "offset"))
    place = list(proto.graph.node).index(maker) + 1
    proto.graph.node.insert(place, helper.make_node("Add", ["kept", "offset"], [positions]))
    proto.graph.node.insert(place + 1, helper.make_node("Identity", [positions], ["moved"]))

    report = exportguard.find_divergence(module, proto.SerializeToString(), (x,))
    assert report.first is not None
    assert set(report.first.node.outputs) & {positions, "moved", *maker.output}, str(report)
