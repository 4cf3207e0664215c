"""Gradients of what forward computes, of a batch of any size: forces, steps of descent, gradients of gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.func import functional_call, grad, grad_and_value, vjp
from torch.nn import functional

from exportguard import to_onnx

Function = Callable[["Differentiated", torch.Tensor], torch.Tensor]


class Differentiated(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def forces(model: Differentiated, x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        places = x.detach().requires_grad_()
        energy = torch.tanh(model.layer(places)).sum() + (places.unsqueeze(0) - places.unsqueeze(1)).pow(2).sum()
        return -torch.autograd.grad(energy, places)[0]


def forces_asked_for_later(model: Differentiated, x: torch.Tensor) -> torch.Tensor:
    places = x.detach().requires_grad_()
    with torch.enable_grad():
        energy = functional.layer_norm(functional.gelu(model.layer(places)), (4,)).pow(3).sum()
    (force,) = torch.autograd.grad(energy, places)
    return force + x


def descent(model: Differentiated, x: torch.Tensor) -> torch.Tensor:
    weight = model.layer.weight
    for _ in range(2):
        weight = weight - 0.1 * grad(lambda w: (functional.linear(x, w) - x).pow(2).mean())(weight)
    return functional.linear(x, weight)


def of_parameters(model: Differentiated, x: torch.Tensor) -> torch.Tensor:
    parameters = {"weight": model.layer.weight, "bias": model.layer.bias}
    gradients = grad(lambda given: functional_call(model.layer, given, (x,)).sigmoid().mean())(parameters)
    return gradients["weight"] + gradients["bias"]


def twice(model: Differentiated, x: torch.Tensor) -> torch.Tensor:
    inner = grad(lambda y: (torch.sin(y) * y).sum())
    return grad(lambda y: (inner(y) * y).pow(2).sum())(x)


def of_two(model: Differentiated, x: torch.Tensor) -> torch.Tensor:
    (first, second), (value, rest) = grad_and_value(lambda y, z: ((y * z).sum(), y + z), (0, 1), has_aux=True)(x, x * 2)
    return first + second * value + rest


def attention(model: Differentiated, x: torch.Tensor) -> torch.Tensor:
    def score(y: torch.Tensor) -> torch.Tensor:
        heads = y[None]
        return functional.scaled_dot_product_attention(heads, heads, model.layer(y)[None]).pow(2).sum()

    return grad(score)(x)


FUNCTIONS: list[Function] = [
    forces, forces_asked_for_later, descent, of_parameters, twice, of_two, attention,
    lambda model, x: vjp(lambda y: torch.softmax(model.layer(y), -1) * y, x)[1](torch.ones_like(x))[0],
    lambda model, x: grad(lambda y: functional.cross_entropy(model.layer(y), y.argmax(-1)))(x),
]  # fmt: skip


def differentiates_batches_of_any_size() -> None:
    for function in FUNCTIONS:
        model = Differentiated(function).eval()
        converted = to_onnx(model, (torch.randn(5, 4),), dynamic_shapes=({0: "batch"},))
        for size in (1, 5, 8):
            x = torch.randn(size, 4)
            (got,) = converted.run({"x": x}).values()
            torch.testing.assert_close(torch.as_tensor(got), model(x).detach(), rtol=1e-4, atol=1e-5)


PROGRAMS = {"gradients in forward": differentiates_batches_of_any_size}
