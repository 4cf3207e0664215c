"""Programs that need the patches of torch."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves

from called import Called
from exportguard import to_onnx, torch_export_patches
from exportguard.caches.build import make_dynamic_cache
from exportguard.patches.torch.static_axes import StaticAxisError
from patch_programs.written_entries import are_right


class FixesTheBatch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] == 4 else x - 1


def export_with_a_fixed_batch(axis: Any, **guard: Any) -> torch.export.ExportedProgram:
    with torch_export_patches(**guard):
        return torch.export.export(FixesTheBatch(), (torch.zeros(4, 3),), dynamic_shapes=({0: axis},))


def stops_where_the_axis_is_fixed() -> None:
    with pytest.raises(StaticAxisError):
        export_with_a_fixed_batch(Dim.DYNAMIC, stop_if_static=1)


class OneHot(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(x, y.shape[0] // 2)


def one_hot_of_the_largest(x: torch.Tensor) -> torch.Tensor:
    order = x.argsort(1)
    classes: Any = max(order.amax() + 1, x.shape[1])
    return torch.nn.functional.one_hot(order, classes)[..., :-1]


def keeps_the_number_of_classes_symbolic() -> None:
    x, axes = torch.tensor([0, 2, 1]), ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
    with torch_export_patches():
        program = torch.export.export(OneHot(), (x, torch.zeros(8)), dynamic_shapes=axes)
    for size in (8, 13):
        assert torch.equal(program.module()(x, torch.zeros(size)), OneHot()(x, torch.zeros(size)))
    for function in (
        lambda x: torch.nn.functional.one_hot(x.argsort(1)),
        lambda x: torch.nn.functional.one_hot(x.argsort(1) // 2, x.argsort(1).amax() + 1),
        one_hot_of_the_largest,
    ):
        are_right([function], rewrite="auto")


class CausalUnderATest(torch.nn.Module):
    """Attention as decoders write it: one token behind a past sees all of it."""

    def forward(self, x: torch.Tensor, past: torch.Tensor) -> Any:
        states, length = torch.cat([past, x], 1), x.shape[1]
        attend = torch.nn.functional.scaled_dot_product_attention
        alone = attend(x, x, x, None, 0.0, length > 1)
        return alone, attend(x, states, states, is_causal=length > 1, scale=0.3), attend(x, x, x, is_causal=length > 4)


def attends_causally_under_a_test() -> None:
    axes = ({0: "batch", 1: "seq"}, {0: "batch", 1: "past"})
    model = CausalUnderATest().eval()
    onnx = to_onnx(model, (torch.randn(2, 3, 8), torch.randn(2, 5, 8)), dynamic_shapes=axes)
    for batch, seq, past in ((2, 3, 5), (1, 1, 7), (3, 6, 1), (2, 5, 0)):
        x, before = torch.randn(batch, seq, 8), torch.randn(batch, past, 8)
        for got, want in zip(onnx.run({"x": x, "past": before}).values(), model(x, before), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


class MovesItsHead(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.head = self.head.to(x.device, torch.float32)
        y: torch.Tensor = self.head(x.float())
        return y


def exports_a_module_that_is_where_it_is_moved_to() -> None:
    model, x = MovesItsHead().eval(), torch.randn(3, 3)
    with torch_export_patches():
        program = torch.export.export(model, (x,), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert torch.equal(program.module()(x[:2]), model(x[:2]))


class MakesATable(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", None)
        self.register_buffer("shift", torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.arange(4).float()
        return x * self.table + self.shift


def writes_to_no_other_buffer() -> None:
    with torch_export_patches():
        program = torch.export.export(MakesATable(), (torch.ones(2, 4),))
    module = program.module()
    for _ in range(2):
        assert torch.equal(module(torch.ones(2, 4)), torch.arange(4) + torch.full((2, 4), 2.0))


class Doubles(torch.nn.Module):
    def forward(self, cache: Any) -> Any:
        return cache.layers[0].keys * 2


def loads_a_program_with_a_cache() -> None:
    buffer = io.BytesIO()
    with torch_export_patches():
        cache = make_dynamic_cache([(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))])
        torch.export.save(torch.export.export(Doubles(), (cache,)), buffer)
        buffer.seek(0)
        allowed = torch.serialization.get_safe_globals()
        assert type(cache) in allowed
        assert type(cache.layers[0]) in allowed
        torch.export.load(buffer)


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, self.larger, self.smaller, (x,))

    def larger(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def smaller(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


def knows_the_lines_of_branches() -> None:
    with torch_export_patches():
        program = torch.export.export(Branches(), (torch.randn(3),))
    nodes = [node for module in program.graph_module.modules() for node in module.graph.nodes]
    traces = [node.meta["stack_trace"] for node in nodes if node.name in ("mul", "div")]
    assert len(traces) == 2
    assert all(", in larger" in trace or ", in smaller" in trace for trace in traces)
    chooses_entries_in_branches()


class ChoosesEntries(torch.nn.Module):
    """The index of an entry is a size in branches."""

    def forward(self, x: torch.Tensor) -> Any:
        copy, length = x.clone(), x.shape[1]
        if x.sum() > 0:
            entry = x[:, length - 1]
            copy[:, length - 1] = 1.0
        else:
            entry = x[:, length // 2] * 2
            copy[-x.shape[0]] = x[0].flip(0)
        return entry, copy


def chooses_entries_in_branches() -> None:
    model = ChoosesEntries().eval()
    onnx = to_onnx(model, (torch.randn(3, 6),), dynamic_shapes=({0: "b", 1: "n"},), rewrite="auto")
    for sizes in ((3, 6), (2, 9), (1, 3), (1, 1)):
        for x in (torch.rand(sizes), -torch.rand(sizes)):
            for got, want in zip(onnx.run({"x": x}).values(), model(x), strict=True):
                torch.testing.assert_close(got, want)


class Collects(torch.nn.Module):
    def forward(self, x: torch.Tensor, z: torch.Tensor | None = None, **others: Any) -> torch.Tensor:
        return x.sum() + others["y"].sum() * others["times"] + z.sum()


def gives_shapes_to_collected_arguments() -> None:
    y, z = torch.ones(3, 2), torch.ones(5)
    kwargs = {"y": y, "z": z, "times": 2}
    shapes = {"x": {0: Dim.DYNAMIC}, "z": {0: Dim("n", max=9)}, "others": {"y": {0: Dim.DYNAMIC}, "times": None}}
    with torch_export_patches(catch_constraints=False):
        program = torch.export.export(Collects(), (torch.ones(4),), kwargs, dynamic_shapes=shapes, strict=False)
    bounds = [bound.upper for bound in program.range_constraints.values()]
    assert 9 in bounds
    got = program.module()(torch.ones(7), y=torch.ones(6, 2), z=torch.ones(8), times=2)
    assert got == 7 + 6 * 2 * 2 + 8


def keeps_the_lengths_of_recurrent_layers() -> None:
    for layer in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        model = layer(4, 5, num_layers=2, bidirectional=True, batch_first=True).eval()
        shapes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
        with torch_export_patches():
            program = torch.export.export(model, (torch.randn(2, 6, 4),), dynamic_shapes=shapes, strict=False)
        for sizes in [(2, 6), (3, 9), (2, 2)]:
            x = torch.randn(*sizes, 4)
            for one, other in zip(tree_leaves(program.module()(x)), tree_leaves(model(x)), strict=True):
                torch.testing.assert_close(one, other)


class Packs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.GRU(3, 4, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]


def keeps_the_lengths_of_packed_sequences() -> None:
    model, axes = Packs().eval(), ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
    with torch_export_patches():
        program = torch.export.export(model, (torch.zeros(3, 5, 3), torch.tensor([5, 2, 3])), dynamic_shapes=axes)
    for lengths in (torch.tensor([1, 4]), torch.tensor([2, 2, 6, 1])):
        x = torch.rand(len(lengths), 6, 3)
        torch.testing.assert_close(program.module()(x, lengths), model(x, lengths))


class ComputesATableAtTheFirstCall(torch.nn.Module):
    table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.arange(3.0)
        return x * self.table


def leaves_the_module_as_it_was() -> None:
    module = ComputesATableAtTheFirstCall()
    with torch_export_patches():
        torch.export.export(module, (torch.ones(3),))
    assert module.table is None
    assert torch.equal(module(torch.ones(3)), torch.arange(3.0))


def _turned(x: torch.Tensor, align_corners: bool) -> torch.Tensor:
    theta = torch.tensor([[1.0, 0.2, 0.1], [0.3, 0.9, 0.0]]).expand(x.shape[0], 2, 3)
    grid = torch.nn.functional.affine_grid(theta, list(x.shape), align_corners=align_corners)
    return torch.nn.functional.grid_sample(x, grid, align_corners=align_corners)


def _back(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    spectra = torch.stft(x, 8, 4, window=window, return_complex=True)
    return torch.istft(spectra, 8, 4, window=window, length=x.shape[1])


def _half(x: torch.Tensor, axis: int = 2) -> int:
    return (x.shape[axis] + 1) // 2


SIZES_AS_NUMBERS: dict[str, list[Callable[[torch.Tensor], torch.Tensor]]] = {
    "linspace": [
        lambda x: x * torch.linspace(0, 1, x.shape[3]),
        lambda x: x * torch.linspace(-3.5, 2.5, steps=x.shape[3], dtype=torch.float64),
        lambda x: _turned(x, False),
        lambda x: _turned(x, True),
        lambda x: x * torch.signal.windows.gaussian(x.shape[3], std=2.0),
    ],
    "logspace": [
        lambda x: x * torch.logspace(0, 1, x.shape[3]),
        lambda x: x * torch.logspace(-2, 2.5, steps=x.shape[3], base=2, dtype=torch.float64),
    ],
    "average over all": [
        lambda x: torch.nn.functional.avg_pool2d(x, list(x.size()[2:])).flatten(1),
        lambda x: torch.nn.functional.avg_pool2d(x, (1, x.shape[3])),
        lambda x: torch.nn.functional.avg_pool2d(x, (_half(x), 1)),
        lambda x: torch.nn.functional.lp_pool2d(x.abs(), 2, (x.shape[2], x.shape[3])),
    ],
    "average over a line": [
        lambda x: torch.nn.functional.avg_pool1d(x[:, :, 0], x.shape[3]),
        lambda x: torch.nn.functional.avg_pool1d(x[:, :, 0], _half(x, 3), 2),
    ],
    "largest of all": [
        lambda x: torch.nn.functional.max_pool2d(x, kernel_size=list(x.size()[2:])),
        lambda x: torch.nn.functional.max_pool2d(x, (x.shape[2], 1), stride=1),
        lambda x: torch.nn.functional.max_pool2d(x, (1, _half(x, 3)), (1, 1)),
    ],
    "largest of a line": [
        lambda x: torch.nn.functional.max_pool1d(x[:, :, 0], x.shape[3]),
        lambda x: torch.nn.functional.max_pool1d(x[:, :, 0], _half(x, 3)),
    ],
    "windows": [
        lambda x: x.unfold(2, _half(x), 1),
        lambda x: x.unfold(-1, 1, _half(x, 3)).sum(-1),
        lambda x: (x * 2).unfold(3, _half(x, 3), _half(x, 3)).amax(-1),
    ],
    "patches": [
        lambda x: torch.nn.functional.unfold(x, (x.shape[2], 1)),
        lambda x: torch.nn.functional.unfold(x, (1, _half(x, 3)), stride=(1, _half(x, 3))),
    ],
    "diagonal": [
        lambda x: torch.diagonal(x, x.shape[3] - 2, 2, 3),
        lambda x: torch.diagonal(x[0, 0], offset=-_half(x)),
    ],
    "diagonal of itself": [lambda x: x.diagonal(offset=_half(x) - 2, dim1=-1, dim2=-2)],
    "matrix or diagonal": [
        lambda x: torch.diag(x[0, 0], x.shape[2] - x.shape[3]),
        lambda x: torch.diag(x[0, 0, 0], diagonal=2 - x.shape[2]),
    ],
    "matrix or diagonal of itself": [lambda x: x[0, 0].diag(_half(x))],
    "matrices by diagonals": [lambda x: torch.diag_embed(x, _half(x) - 2)],
    "average of parts of a line": [lambda x: torch.nn.functional.adaptive_avg_pool1d(x[:, :, 0], _half(x, 3))],
    "padding of signals": [
        lambda x: torch.nn.functional.conv1d(x[:, :, 0], torch.ones(2, 3, 1), torch.ones(2), padding=_half(x, 3)),
    ],
    "padding of pictures": [
        lambda x: torch.nn.functional.conv2d(x, torch.ones(3, 1, 1, 1), padding=(_half(x), 1), groups=3),
    ],
    "upper triangle": [lambda x: x[:, 0][:, *torch.triu_indices(x.shape[2], x.shape[3], 1)]],
    "lower triangle": [lambda x: x[:, 0][:, *torch.tril_indices(x.shape[2], x.shape[3], -1)]],
    "Hann window": [
        lambda x: x * torch.hann_window(x.shape[3]),
        lambda x: x * torch.hann_window(x.shape[3], periodic=False),
    ],
    "Hamming window": [lambda x: x * torch.hamming_window(x.shape[3])],
    "Blackman window": [
        lambda x: x * torch.blackman_window(x.shape[3]),
        lambda x: x * torch.blackman_window(x.shape[3], periodic=False, dtype=torch.float64),
    ],
    "Bartlett window": [
        lambda x: x * torch.bartlett_window(x.shape[3]),
        lambda x: x * torch.bartlett_window(x.shape[3], False),
    ],
    "Kaiser window": [
        lambda x: x * torch.kaiser_window(x.shape[3]),
        lambda x: x * torch.kaiser_window(x.shape[3], False, beta=5.0, dtype=torch.float64),
    ],
    "frequencies": [
        lambda x: x * torch.fft.fftfreq(x.shape[3]),
        lambda x: x * torch.fft.fftfreq(x.shape[3], d=0.5, dtype=torch.float64),
    ],
    "half of the frequencies": [lambda x: torch.fft.rfft(x).abs() * torch.fft.rfftfreq(x.shape[3], 2.0)],
    "signal of spectra": [lambda x: _back(x.flatten(1).repeat(1, 8), torch.ones(8))],
}


def keeps_the_axes(functions: Sequence[Callable[[torch.Tensor], torch.Tensor]]) -> None:
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    for function in functions:
        model = to_onnx(Called(function).eval(), (torch.randn(2, 3, 5, 6),), dynamic_shapes=shapes)
        for sizes in [(2, 5, 6), (3, 4, 4), (2, 7, 2), (1, 1, 1), (1, 16, 9)]:
            x = torch.randn(sizes[0], 3, *sizes[1:])
            (got,) = model.run({"x": x}).values()
            torch.testing.assert_close(got, function(x))


class Decodes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
        self.decoder = torch.nn.TransformerDecoder(layer, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        decoded: torch.Tensor = self.decoder(x, x * 2, tgt_mask=mask)
        return decoded


def does_not_look_at_masks() -> None:
    decoder = Decodes().eval()
    model = to_onnx(decoder, (torch.randn(2, 5, 8),), dynamic_shapes=({0: "batch", 1: "seq"},))
    for length in (1, 5, 9):
        x = torch.randn(3, length, 8)
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(got, decoder(x), rtol=1e-5, atol=2e-6)


PROGRAMS = {
    "hints of causal masks": does_not_look_at_masks,
    **{f"{name} of a symbolic length": partial(keeps_the_axes, uses) for name, uses in SIZES_AS_NUMBERS.items()},
    "causal attention under a test of sizes": attends_causally_under_a_test,
    "attributes of traced modules": leaves_the_module_as_it_was,
    "assigned buffers": writes_to_no_other_buffer,
    "modules moved to where they are": exports_a_module_that_is_where_it_is_moved_to,
    "one hot of a symbolic length": keeps_the_number_of_classes_symbolic,
    "lengths of recurrent layers": keeps_the_lengths_of_recurrent_layers,
    "packed sequences": keeps_the_lengths_of_packed_sequences,
    "shapes of collected arguments": gives_shapes_to_collected_arguments,
    "lines of bodies": knows_the_lines_of_branches,
    "constraint violations": lambda: export_with_a_fixed_batch(Dim("batch")),
    "specialized dynamic axes": lambda: export_with_a_fixed_batch(Dim.DYNAMIC),
    "static axes": stops_where_the_axis_is_fixed,
    "caches in loaded programs": loads_a_program_with_a_cache,
}
