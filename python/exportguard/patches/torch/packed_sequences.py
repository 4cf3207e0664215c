"""Packed sequences of any lengths: `pack_padded_sequence`, a recurrent layer, `pad_packed_sequence`.

How many elements are packed and how many steps there are depends on data. torch.export stops at each of the three; here
they get results of such sizes, and the operators stay in the program for the converter.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import PackedSequence

from exportguard.declaration.patch import NEEDED, Patch, Replacement, Verdict, not_needed, replaced
from exportguard.declaration.targets import resolve_object

if TYPE_CHECKING:
    from exportguard._core import Changes

_LAYERS = "torch._decomp.decompositions"
_MODULES = "torch.nn.modules.rnn"

# An attribute of the environment of a trace: how many sequences were packed, which packing forgets, by the symbol of
# the number of steps. The fake tensor of batch sizes cannot hold it: torch makes others in its place.
_BATCHES = "_exportguard_batches"


@torch.library.custom_op("exportguard::pad_packed_sequence", mutates_args=())
def pad_packed_sequence(
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    batch_first: bool,
    padding_value: float,
    total_length: int,
    batch: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`batch` sequences of `total_length` steps and their lengths: torch's own takes no symbolic length."""
    pad = torch._C._VariableFunctions._pad_packed_sequence
    padded, lengths = pad(data, batch_sizes, batch_first, padding_value, total_length)
    return padded.contiguous(), lengths


@pad_packed_sequence.register_fake
def _(
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    batch_first: bool,
    padding_value: float,
    total_length: int,
    batch: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    axes = (batch, total_length) if batch_first else (total_length, batch)
    return data.new_empty((*axes, *data.shape[1:])), batch_sizes.new_empty((batch,))


def _is_fake(value: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def _batch_of(batch_sizes: torch.Tensor) -> Any:
    steps: Any = batch_sizes.shape[0]
    known = vars(steps.node.shape_env).get(_BATCHES, {}) if isinstance(steps, torch.SymInt) else {}
    return known[steps.node.expr] if known and steps.node.expr in known else batch_sizes[0].item()


# ------------------------------------------------------------------------------------------------ packing


def packed_shapes(
    fake_mode: Any, func: Any, input: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements of all sequences, and how many sequences each step has: both of sizes that depend on data."""
    batch, steps = (input.shape[0], input.shape[1]) if batch_first else (input.shape[1], input.shape[0])
    total = fake_mode.shape_env.create_unbacked_symint()
    longest = fake_mode.shape_env.create_unbacked_symint()
    check: Callable[[Any], None] = torch._check  # which has no types
    for size in (total, longest):
        check(size >= 1)
    check(longest <= steps)
    vars(fake_mode.shape_env).setdefault(_BATCHES, {})[longest.node.expr] = batch
    with fake_mode:
        return input.new_empty((total, *input.shape[2:])), lengths.new_empty((longest,))


def open_lengths(changes: Changes) -> None:
    """Packing gets shapes, and padding takes a symbolic length."""
    from torch._subclasses.fake_impls import op_implementations_dict

    # torch 2.11 to 2.13 give the elements the shape of one sequence, and batch sizes that are floats.
    changes.set_item(op_implementations_dict, torch.ops.aten._pack_padded_sequence.default, packed_shapes)
    module: Any = torch.nn.utils.rnn
    changes.set_attribute(module, "_VF", _AnyLength(module._VF))


class _AnyLength:
    """torch's functions, but for one that pads to a symbolic length as well."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def _pad_packed_sequence(
        self, data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding_value: float, total_length: int
    ) -> Any:
        if not _is_fake(batch_sizes):
            return self._original._pad_packed_sequence(data, batch_sizes, batch_first, padding_value, total_length)
        batch = _batch_of(batch_sizes)
        return pad_packed_sequence(data, batch_sizes, batch_first, float(padding_value), total_length, batch)


# ------------------------------------------------------------------------------------------------ layers


def shapes_without_steps(original: Callable[..., Any]) -> Callable[..., Any]:
    """One layer over packed elements, which takes no step where only the shapes are asked for."""

    @functools.wraps(original)
    def one_layer(inp: torch.Tensor, hidden: Any, params: Any, has_biases: bool, *args: Any, **kwargs: Any) -> Any:
        if not _is_fake(inp):
            return original(inp, hidden, params, has_biases, *args, **kwargs)
        states = hidden if isinstance(hidden, tuple | list) else (hidden,)
        ends = [state.new_empty(state.shape) for state in states]
        output = inp.new_empty((inp.shape[0], states[0].shape[-1]))
        return output, tuple(ends) if isinstance(hidden, tuple | list) else ends[0]

    return one_layer


def with_initial_state(original: Callable[..., Any]) -> Callable[..., Any]:
    """The layer from zeros for as many sequences as were packed, where the initial state is left out."""

    @functools.wraps(original)
    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence) and hx is None and _is_fake(input.batch_sizes):
            hx = _zeros(self, input)
        return original(self, input, hx)

    return forward


def _zeros(layer: torch.nn.RNNBase, input: PackedSequence) -> Any:
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    batch = _batch_of(input.batch_sizes)
    state = input.data.new_zeros((count, batch, layer.proj_size or layer.hidden_size))
    if layer.mode != "LSTM":
        return state
    return state, input.data.new_zeros((count, batch, layer.hidden_size))


def size_of_open_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    """The size of a state, whose batch torch reads as a number."""

    @functools.wraps(original)
    def expected_size(self: Any, input: torch.Tensor, batch_sizes: torch.Tensor | None) -> Any:
        if batch_sizes is None or not _is_fake(batch_sizes):
            return original(self, input, batch_sizes)
        count = self.num_layers * (2 if self.bidirectional else 1)
        is_cell = original.__name__ == "get_expected_cell_size"
        return count, _batch_of(batch_sizes), self.hidden_size if is_cell else self.proj_size or self.hidden_size

    return expected_size


# ------------------------------------------------------------------------------------------------ the patch

_TARGETS: tuple[tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]], ...] = (
    (f"{_LAYERS}.one_layer_lstm_data", shapes_without_steps),
    (f"{_LAYERS}.one_layer_rnn_data", shapes_without_steps),
    (f"{_MODULES}.LSTM.forward", with_initial_state),
    (f"{_MODULES}.GRU.forward", with_initial_state),
    (f"{_MODULES}.RNN.forward", with_initial_state),
    (f"{_MODULES}.RNNBase.get_expected_hidden_size", size_of_open_batch),
    (f"{_MODULES}.LSTM.get_expected_cell_size", size_of_open_batch),
)


def _apply(changes: Changes) -> list[Replacement]:
    open_lengths(changes)
    return [replaced(changes, path, replace) for path, replace in _TARGETS]


def _probe() -> Verdict:
    layer = resolve_object(f"{_LAYERS}.one_layer_lstm_data")
    has_loop = dis.opmap["FOR_ITER"] in layer.__code__.co_code[::2]  # every other byte is an argument
    return NEEDED if has_loop else not_needed("torch finds the shapes without the steps")


PATCHES = (
    Patch(
        name="packed sequences",
        kind="torch",
        target=("torch.nn.utils.rnn._VF", *(path for path, _ in _TARGETS)),
        reason="torch.export stops at the lengths of packed sequences, which depend on data",
        upstream="https://github.com/pytorch/pytorch/issues/112044",
        is_in_traces=False,
        probe=_probe,
        apply=_apply,
    ),
)
