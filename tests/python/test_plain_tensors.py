"""Weights that consist of tensors, as quantizing packages make them, are converted and stay what they were."""

from __future__ import annotations

from typing import Any

import torch

from exportguard import to_onnx


class Scaled(torch.Tensor):
    """A matrix of int8 with a scale for each row, which is a float tensor for whoever computes with it."""

    whole: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, whole: torch.Tensor, scale: torch.Tensor) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=scale.dtype)  # type: ignore[attr-defined,no-any-return]

    def __init__(self, whole: torch.Tensor, scale: torch.Tensor) -> None:
        self.whole = whole
        self.scale = scale

    @classmethod
    def of(cls, weight: torch.Tensor) -> Scaled:
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls(torch.round(weight / scale).to(torch.int8), scale)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["whole", "scale"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, torch.Tensor], context: None, size: Any, stride: Any) -> Scaled:
        return Scaled(parts["whole"], parts["scale"])

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.nn.functional.linear:
            x, weight, bias = args
            return function(x, weight.whole.to(x.dtype) * weight.scale, bias)
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert function is torch.ops.aten.detach.default
        return cls(args[0].whole, args[0].scale)


def quantized() -> torch.nn.Sequential:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4)).eval()
    for layer in (model[0], model[2]):
        layer.weight = torch.nn.Parameter(Scaled.of(layer.weight.detach()), requires_grad=False)
    return model


def test_weights_of_several_tensors_are_converted() -> None:
    model = quantized()
    converted = to_onnx(model, (torch.randn(3, 8),), dynamic_shapes=({0: "batch"},))
    for batch in (1, 3, 7):
        x = torch.randn(batch, 8)
        (got,) = converted.run({"input": x}).values()
        torch.testing.assert_close(torch.as_tensor(got), model(x))


def test_the_model_has_the_same_weights_afterwards() -> None:
    model = quantized()
    before = [(module, type(module), dict(vars(module)["_parameters"])) for module in model.modules()]
    modules, keys = list(model.modules()), list(model.state_dict())
    to_onnx(model, (torch.randn(3, 8),))
    assert list(model.modules()) == modules
    assert list(model.state_dict()) == keys
    for module, kind, parameters in before:
        assert type(module) is kind
        assert all(module._parameters[name] is tensor for name, tensor in parameters.items())
