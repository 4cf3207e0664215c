from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

if TYPE_CHECKING:
    from conftest import Check

LAYERS = (nn.LSTM, nn.GRU, nn.RNN)


@pytest.mark.parametrize("bias", [True, False], ids=("bias", "no bias"))
@pytest.mark.parametrize("batch_first", [True, False], ids=("batch first", "sequence first"))
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [True, False], ids=("both ways", "forward"))
@pytest.mark.parametrize("kind", LAYERS)
def test_recurrent_layers(
    kind: type[nn.RNNBase], bidirectional: bool, layers: int, batch_first: bool, bias: bool, check: Check
) -> None:
    layer = kind(4, 5, layers, bidirectional=bidirectional, batch_first=batch_first, bias=bias)
    other = torch.randn(1, 3, 4) if batch_first else torch.randn(2, 1, 4)
    check(layer, [torch.randn(2, 3, 4)], others=[[other]])


@pytest.mark.parametrize("kind", LAYERS)
def test_recurrent_layers_that_start_from_a_state(kind: type[nn.RNNBase], check: Check) -> None:
    class FromState(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(4, 5, 2, bidirectional=True)

        def forward(self, x: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor) -> object:
            return self.layer(x, (hidden, cell) if kind is nn.LSTM else hidden + cell)

    check(FromState(), [torch.randn(2, 3, 4), torch.randn(4, 3, 5), torch.randn(4, 3, 5)])


def test_a_layer_with_relu_and_without_a_batch(check: Check) -> None:
    check(nn.RNN(4, 5, nonlinearity="relu"), [torch.randn(2, 4)])


CELLS = {
    "lstm": nn.LSTMCell(4, 5),
    "lstm without bias": nn.LSTMCell(4, 5, bias=False),
    "gru": nn.GRUCell(4, 5),
    "gru without bias": nn.GRUCell(4, 5, bias=False),
    "tanh": nn.RNNCell(4, 5),
    "relu": nn.RNNCell(4, 5, nonlinearity="relu"),
}


@pytest.mark.parametrize("shape", [(2, 4), (4,)], ids=("batch", "no batch"))
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_recurrent_cells(cell: nn.Module, shape: tuple[int, ...], check: Check) -> None:
    check(cell, [torch.randn(shape)])


@pytest.mark.parametrize("batch_first", [True, False], ids=("batch first", "sequence first"))
@pytest.mark.parametrize(
    ("kind", "options"),
    [(nn.LSTM, {}), (nn.LSTM, {"proj_size": 3}), (nn.GRU, {}), (nn.RNN, {"nonlinearity": "relu"})],
    ids=("lstm", "projected lstm", "gru", "relu"),
)
@pytest.mark.parametrize("bidirectional", [True, False], ids=("both ways", "forward"))
def test_layers_of_no_sequence(
    kind: type[nn.RNNBase], options: dict[str, object], bidirectional: bool, batch_first: bool, check: Check
) -> None:
    """As in a way of a model that is for no rows, `if index.numel() > 0`."""
    layer = kind(4, 5, 2, bidirectional=bidirectional, batch_first=batch_first, **options)
    check(layer, [torch.randn(0, 3, 4) if batch_first else torch.randn(3, 0, 4)])
