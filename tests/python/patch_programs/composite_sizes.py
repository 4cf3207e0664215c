"""Operators of torch that read sizes as numbers in C++."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from called import Called
from exportguard import ExportGuardError, to_onnx

Function = Callable[..., object]


def _filled_in_a_part(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    whole = x.clone()
    part = whole[1:, :-1]
    part.fill_diagonal_(4.0)
    return whole, part


def _doubled_in_a_part(x: torch.Tensor) -> torch.Tensor:
    whole = x.clone()
    whole.tensor_split(3, 1)[1].mul_(2)
    return whole


FUNCTIONS: list[Function] = [
    lambda x: x.take_along_dim(x.argsort(1), 1),
    lambda x: torch.take_along_dim(x, x[:1].argsort(1), dim=-1),
    lambda x: torch.take_along_dim(x, x.flatten().argsort()),
    lambda x: torch.kron(x, torch.ones(2, 3)) + torch.kron(torch.eye(2, 3), x).sum(),
    lambda x: torch.linalg.multi_dot([x, x.T, x]),
    lambda x: torch.linalg.multi_dot([x[0], x.T, x, x[0]]),
    lambda x: torch.vander(x[0], 3),
    lambda x: torch.vander(x[0], increasing=True),
    lambda x: torch.gradient(x),
    lambda x: torch.gradient(x, spacing=2.0, dim=1)[0],
    lambda x: torch.combinations(x[0]),
    lambda x: torch.combinations(x[0], with_replacement=True),
    lambda x: (torch.cov(x), torch.corrcoef(x)),
    lambda x: torch.nn.functional.max_pool1d(x, 2),
    lambda x: torch.nn.functional.max_pool1d(x[None, :, 1:], 3, stride=2, padding=1, ceil_mode=True),
    lambda x: torch.nn.functional.max_pool1d(x.unsqueeze(1), 2, 1, dilation=2),
    *(lambda x, order=order: torch.linalg.matrix_norm(x, order, keepdim=True) for order in (1, -1, "fro")),
    *(lambda x, order=order: torch.linalg.norm(x, order) for order in (1, float("inf"), None)),
    lambda x: torch.linalg.norm(x, 3, dim=0),
    lambda x: torch.linalg.matrix_norm(torch.stack([x, x + 1], 2), -float("inf"), dim=(2, 0)),
    lambda x: x.clone().fill_diagonal_(3.0),
    lambda x: x.T.clone().fill_diagonal_(-1),
    lambda x: (x > 0).fill_diagonal_(True),
    lambda x: (x @ x.T).fill_diagonal_(-1e9).softmax(-1),
    _filled_in_a_part,
    _doubled_in_a_part,
    lambda x: x.tensor_split(3, 1),
    lambda x: [part * 2 for part in torch.tensor_split(x.T, 2)],
    lambda x: [part.flatten() for part in x.tensor_split(3, dim=-1)],
    lambda x: [torch.linalg.cond(x @ x.T + 3 * torch.eye(x.shape[0]), p) for p in (None, 1, -2, "fro")],
]

#: Of a matrix of which nobody knows whether it is higher than wide.
OF_SINGULAR_VALUES: list[Function] = [
    *(lambda x, order=order: torch.linalg.matrix_norm(x, order, keepdim=True) for order in (2, -2, "nuc")),
    *(lambda x, order=order: torch.linalg.norm(x, order) for order in (2, "nuc")),
]


def keep_the_axes(functions: list[Function]) -> None:
    for function in functions:
        model = to_onnx(Called(function).eval(), (torch.randn(5, 7),), dynamic_shapes=({0: "rows", 1: "columns"},))
        for sizes in [(5, 7), (3, 4), (2, 9)]:
            x = torch.randn(sizes)
            expected = torch.utils._pytree.tree_leaves(function(x))
            for want, got in zip(expected, model.run({"x": x}).values(), strict=True):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


class AttendsToWhatIsSeen(torch.nn.Module):
    """How many tokens there are is data, as among pictures that are packed side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> Any:
        tokens = x[seen].unsqueeze(0)
        heads = tokens.unflatten(-1, (2, 4)).transpose(1, 2)
        place = torch.arange(tokens.shape[1])
        attend = torch.nn.functional.scaled_dot_product_attention
        near = attend(heads, heads, heads, attn_mask=(place[:, None] - place).abs() < 2)
        causal = attend(heads, heads, heads, is_causal=tokens.shape[1] > 1)
        return self.layer(tokens, tokens, tokens, need_weights=False)[0], near, causal.transpose(1, 2).flatten(2)


def attend_to_a_number_of_tokens_that_is_data() -> None:
    axes = {0: "batch", 1: "seq"}
    model = AttendsToWhatIsSeen().eval()
    onnx = to_onnx(model, (torch.randn(2, 5, 8), torch.arange(10).view(2, 5) % 3 < 2), dynamic_shapes=(axes, axes))
    for sizes in ((2, 5), (1, 1), (3, 7)):
        x, seen = torch.randn(*sizes, 8), torch.rand(sizes) < 0.6
        seen[0, 0] = True
        for got, want in zip(onnx.run({"x": x, "seen": seen}).values(), model(x, seen), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


class Attends(torch.nn.Module):
    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, keys, values)


def attend_to_as_many_values_as_keys() -> None:
    axes = {1: torch.export.Dim.DYNAMIC}
    inputs = tuple(torch.randn(2, rows, 4) for rows in (3, 5, 5))
    program = torch.export.export(Attends(), inputs, dynamic_shapes=(axes, axes, axes))
    lengths = [node.meta["val"].shape[1] for node in program.graph.nodes if node.op == "placeholder"]
    assert lengths[1].node.expr == lengths[2].node.expr != lengths[0].node.expr


#: Of rows whose number is data, whose axes do not lie in memory in their order.
OF_ROWS_OF_DATA: list[Function] = [
    lambda rows: rows.t().reshape(-1, rows.shape[0]),
    lambda rows: rows.unflatten(1, (2, 2)).transpose(1, 2).reshape(rows.shape[0], -1),
    lambda rows: torch.stack([rows, rows + 1]).transpose(0, 1).reshape(rows.shape[0] * 2, -1),
    lambda rows: rows.unflatten(1, (2, 2)).transpose(0, 1).reshape(2, rows.shape[0], -1),
    lambda rows: rows.t().unflatten(1, (rows.shape[0], -1)),
    lambda rows: torch.cat([rows, rows]).t().unflatten(-1, (-1, rows.shape[0])),
]


class OfChosenRows(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> object:
        return self.function(x[x[:, 0] > 0])


def leave_a_size_open_beside_sizes_of_data() -> None:
    for function in OF_ROWS_OF_DATA:
        model = OfChosenRows(function).eval()
        onnx = to_onnx(model, (torch.randn(9, 4),), dynamic_shapes=({0: "rows"},))
        for rows in (2, 7, 13):
            x = torch.randn(rows, 4)
            x[0, 0] = 1.0
            (got,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(got, model(x))


def refuse_matrices_that_torch_asks_for_their_smaller_size() -> None:
    """Those of torch 2.11, whose shapes hold for high matrices or for wide ones."""
    for function in OF_SINGULAR_VALUES:
        with pytest.raises(ExportGuardError, match=r"without a lowering|rows|columns"):
            to_onnx(Called(function).eval(), (torch.randn(5, 7),), dynamic_shapes=({0: "rows", 1: "columns"},))


def keep_axes_and_sizes_of_data() -> None:
    keep_the_axes(FUNCTIONS)
    if "sym_min(" in inspect.getsource(torch._meta_registrations._linalg_svd_meta):
        keep_the_axes(OF_SINGULAR_VALUES)
    else:
        refuse_matrices_that_torch_asks_for_their_smaller_size()
    attend_to_a_number_of_tokens_that_is_data()
    attend_to_as_many_values_as_keys()
    leave_a_size_open_beside_sizes_of_data()


PROGRAMS = {"sizes of composite operators": keep_axes_and_sizes_of_data}
