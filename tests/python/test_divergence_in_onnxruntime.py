"""The first node that diverges where onnxruntime runs the model, or where the model was optimized for it."""

from __future__ import annotations

import numpy
import onnx
import pytest
import torch
from onnx import numpy_helper

import exportguard
from exportguard import DivergenceOptions, OnnxModel


class Projections(torch.nn.Module):
    """Three of one input, which the optimizer for onnxruntime makes one product of, layer upon layer."""

    def __init__(self, layers: int = 3, width: int = 16) -> None:
        super().__init__()
        self.q, self.k, self.v = (
            torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for q, k, v in zip(self.q, self.k, self.v, strict=True):
            x = torch.tanh(x + torch.nn.functional.scaled_dot_product_attention(q(x), k(x), v(x)))
        return x


class Faint(torch.nn.Module):
    """What the projection makes is hardly heeded: an output is right within its tolerance whatever it is."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1e-6 * torch.tanh(self.project(x))


def with_other_weight(model: OnnxModel) -> tuple[bytes, tuple[str, ...]]:
    """The file with the first matrix of a product halved, and the outputs of what reads it."""
    proto = onnx.load_from_string(model.to_bytes())
    for tensor in proto.graph.initializer:
        if len(tensor.dims) != 2:
            continue
        values = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array((values * 0.5).astype(values.dtype), tensor.name))
        readers = [node for node in proto.graph.node if tensor.name in node.input]
        return proto.SerializeToString(), tuple(output for node in readers for output in node.output)
    raise AssertionError("no matrix")


@pytest.fixture(params=["evaluator", "onnxruntime"])
def options(request: pytest.FixtureRequest) -> DivergenceOptions:
    return DivergenceOptions(runner=request.param)


def test_a_wrong_value_behind_outputs_that_agree_is_named(options: DivergenceOptions) -> None:
    torch.manual_seed(0)
    module, x = Faint(), torch.randn(3, 8)
    model = exportguard.to_onnx(module, (x,), opset=23)
    wrong, outputs = with_other_weight(model)

    report = exportguard.find_divergence(module, wrong, (x,), options=options)
    assert all(output.agrees for output in report.outputs)
    assert report.first is not None
    assert set(report.first.node.outputs) & set(outputs), str(report)
    assert exportguard.find_divergence(module, model, (x,), options=options).agrees


@pytest.mark.parametrize("columns", [slice(None), slice(0, 1), slice(20, 21)], ids=["all", "first", "second"])
@pytest.mark.parametrize("layer", [0, 2])
def test_a_product_of_several_layers_is_named_and_not_what_parts_it(
    layer: int, columns: slice, options: DivergenceOptions
) -> None:
    """One product stands for three operators, and only a conversion of the whole program makes it once more."""
    torch.manual_seed(0)
    module, x = Projections(), torch.randn(2, 5, 16)
    model = exportguard.to_onnx(module, (x,), opset=23, optimize="onnxruntime")
    assert not any(operator.startswith("com.microsoft") for operator in model._core.operators)
    proto = onnx.load_from_string(model.to_bytes())
    products = [node for node in proto.graph.node if node.op_type == "MatMul" and node.input[1] in weights(proto)]
    stale = weights(proto)[products[layer].input[1]].copy()
    stale[:, columns] *= 1.5
    proto.graph.initializer.append(numpy_helper.from_array(stale, "stale"))
    products[layer].input[1] = "stale"

    report = exportguard.find_divergence(module, proto.SerializeToString(), (x,), options=options)
    assert report.first is not None
    assert report.first.node.outputs == tuple(products[layer].output), str(report)


def weights(proto: onnx.ModelProto) -> dict[str, numpy.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer if len(tensor.dims) == 2}
