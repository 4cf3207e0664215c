"""Packed sequences of any lengths through recurrent layers, exported under the guard and compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from tensors import floats
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from exportguard import to_onnx

Rule = Callable[["Encoder", torch.Tensor, torch.Tensor], Any]


class Encoder(torch.nn.Module):
    def __init__(self, layer: torch.nn.RNNBase, rule: Rule) -> None:
        super().__init__()
        self.layer = layer
        self.rule = rule

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        return self.rule(self, x, lengths)


def padded(self: Encoder, x: torch.Tensor, lengths: torch.Tensor) -> Any:
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    output, state = self.layer(packed)
    return pad_packed_sequence(output, batch_first=True), state


def of_sorted(self: Encoder, x: torch.Tensor, lengths: torch.Tensor) -> Any:
    lengths = lengths.sort(descending=True)[0]
    output, _ = self.layer(pack_padded_sequence(x, lengths, batch_first=True))
    return pad_packed_sequence(output, batch_first=True, padding_value=-2.0, total_length=x.shape[1])[0]


def gone_on_with(self: Encoder, x: torch.Tensor, lengths: torch.Tensor) -> Any:
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    output, _ = pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=x.shape[1])
    return output.tanh().transpose(0, 1).cumsum(0)


def steps_first(self: Encoder, x: torch.Tensor, lengths: torch.Tensor) -> Any:
    output, _ = self.layer(pack_padded_sequence(x.transpose(0, 1), lengths, enforce_sorted=False))
    return pad_packed_sequence(output)[0]


def work_on_the_elements(self: Encoder, x: torch.Tensor, lengths: torch.Tensor) -> Any:
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    scaled = PackedSequence(packed.data.tanh() * 2, *packed[1:])
    output, state = self.layer(scaled)
    return output.data.sum(0), state


def last_state(self: Encoder, x: torch.Tensor, lengths: torch.Tensor) -> Any:
    _, state = self.layer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    return (state[0] if isinstance(state, tuple) else state)[-1] + x[:, 0, :1]


LAYERS: dict[str, Callable[[], torch.nn.RNNBase]] = {
    "lstm": lambda: torch.nn.LSTM(3, 4, num_layers=2, batch_first=True),
    "bidirectional lstm": lambda: torch.nn.LSTM(3, 4, bidirectional=True, batch_first=True),
    "gru": lambda: torch.nn.GRU(3, 4, num_layers=2, bidirectional=True, batch_first=True),
    "rnn": lambda: torch.nn.RNN(3, 4, bidirectional=True),
    "relu rnn": lambda: torch.nn.RNN(3, 4, nonlinearity="relu", bias=False),
}
RULES: dict[str, Rule] = {
    rule.__name__: rule for rule in (padded, of_sorted, gone_on_with, steps_first, work_on_the_elements, last_state)
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("layer", LAYERS)
def test_sequences_of_any_lengths(layer: str, rule: str) -> None:
    torch.manual_seed(0)
    model = Encoder(LAYERS[layer](), RULES[rule]).eval()
    shapes = {"x": {0: "batch", 1: "steps"}, "lengths": {0: "batch"}}
    onnx = to_onnx(model, (floats(3, 5, 3), torch.tensor([5, 2, 3])), dynamic_shapes=shapes)
    session = ort.InferenceSession(onnx.to_bytes(), providers=["CPUExecutionProvider"])
    for lengths in ([5, 2, 3], [1, 6], [4, 4, 4, 4], [2, 3, 1, 1, 2], [1]):
        x = floats(len(lengths), max(lengths) + (len(lengths) == 5), 3)
        expected = torch.utils._pytree.tree_leaves(model(x, torch.tensor(lengths)))
        found = session.run(None, {"x": x.numpy(), "lengths": np.array(lengths)})
        for want, got in zip(expected, found, strict=True):
            np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=str(lengths))


def test_numbers_of_sequences_are_integers_in_programs_of_others() -> None:
    """torch's own trace of `pack_padded_sequence` has them in the dtype of the data."""

    class Packs(torch.nn.Module):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            made = pack_padded_sequence(x, lengths)
            return made.data, made.batch_sizes

    given = floats(4, 3), torch.tensor([4, 2, 1])
    model = to_onnx(torch.export.export(Packs(), given))
    got = model.run({value.name: x for value, x in zip(model.inputs, given, strict=True)}).values()
    for a, b in zip(got, Packs()(*given), strict=True):
        torch.testing.assert_close(a, b)
