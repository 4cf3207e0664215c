"""Operators on rows that tensor data count, which ask how many there are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch

from exportguard import to_onnx, torch_export_patches

F = torch.nn.functional
_Function = Callable[[torch.Tensor], torch.Tensor]


class OfChosen(torch.nn.Module):
    """What a function makes of the rows of a mask, and a number that is made of the sizes which a trace has for it."""

    def __init__(self, function: _Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.function(x[mask])
        return y, torch.ones(()) * y.numel() + sum(100 * size for size in y.shape)


def pictures(rows: torch.Tensor) -> torch.Tensor:
    """One of 4 by 4 for each row, with a channel for each column."""
    return rows[:, :, None, None].expand(-1, -1, 4, 4) + torch.arange(16.0).view(4, 4)


def columns(rows: torch.Tensor) -> torch.Tensor:
    """The rows as the places of one signal."""
    return rows.t()[None]


def _distances(p: float, mode: str) -> _Function:
    return lambda r: torch.cdist(r, r.flip(0) * 2 + 1, p=p, compute_mode=mode)


_ROWS_OF_NUMBERS = torch.arange(12.0).view(3, 4)
_MEAN, _SPREAD = torch.arange(4.0) - 1.5, torch.arange(4.0) + 0.5
_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")

#: Those that a patch gives the shape for.
COMPOSITES: dict[str, _Function] = {
    "batch norm": lambda r: F.batch_norm(r, _MEAN, _SPREAD),
    "batch norm with weights": lambda r: F.batch_norm(r, _MEAN, _SPREAD, _SPREAD, _MEAN),
    "batch norm of signals": lambda r: F.batch_norm(pictures(r).flatten(2), _MEAN, _SPREAD),
    "batch norm of pictures": lambda r: F.batch_norm(pictures(r), _MEAN, _SPREAD),
    "instance norm": lambda r: F.instance_norm(pictures(r)),
    "instance norm with statistics": lambda r: F.instance_norm(pictures(r), _MEAN, _SPREAD, use_input_stats=False),
    **{f"cdist {p} {mode}": _distances(p, mode) for p in (0.0, 0.5, 1.0, 2.0, 3.0, float("inf")) for mode in _MODES},
    "cdist of equal rows": lambda r: torch.cdist(r, r, compute_mode="donot_use_mm_for_euclid_dist"),
    "cdist to known rows": lambda r: torch.cdist(torch.arange(12.0).view(3, 4), r),
    "cdist from constant rows": lambda r: torch.cdist(_ROWS_OF_NUMBERS, r),
    "cdist of batches": lambda r: torch.cdist(pictures(r), pictures(r)[:, :1, :2] + 1),
    "cosine similarity of pairs": lambda r: F.cosine_similarity(r[:, None], r[None], dim=-1),
    "cosine similarity": lambda r: F.cosine_similarity(r, r.flip(0)),
    "cosine similarity of columns": lambda r: F.cosine_similarity(r, r * 2 + 1, dim=0),
    "bilinear": lambda r: F.bilinear(r, r * 2, torch.arange(48.0).view(3, 4, 4) * 0.1, torch.ones(3)),
    "bilinear of signals": lambda r: F.bilinear(r[:, None], r[:, None, :2], torch.arange(24.0).view(3, 4, 2)),
    "tensordot over rows": lambda r: torch.tensordot(r, r * 2, ([0], [0])),
    "tensordot over columns": lambda r: torch.tensordot(r, r * 2, ([1], [1])),
    "tensordot with weights": lambda r: torch.tensordot(r, torch.arange(12.0).view(4, 3), 1),
    "the first of two parts": lambda r: torch.tensor_split(r, 2)[0],
    "the last of three parts": lambda r: torch.tensor_split(r, 3)[-1],
    "diff": lambda r: r.diff(dim=0),
    "diff twice": lambda r: r.diff(n=2, dim=0),
    "diff none": lambda r: r.diff(n=0, dim=0),
    "diff behind a row": lambda r: r.diff(dim=0, prepend=torch.zeros(1, 4)),
    "diff between rows": lambda r: r.diff(n=3, dim=0, prepend=torch.zeros(1, 4), append=r[:1]),
    "diff of whole numbers": lambda r: (r * 10).long().diff(dim=0),
    "diff of flags": lambda r: (r > 0).diff(dim=0),
    "diff over columns": lambda r: r.diff(),
    "trapezoid": lambda r: torch.trapezoid(r, dim=0),
    "trapezoid of steps": lambda r: torch.trapezoid(r, dx=0.5, dim=0),
    "trapezoid over places": lambda r: torch.trapezoid(r, r.cumsum(0), dim=0),
    "trapezoid over one axis of places": lambda r: torch.trapezoid(r, r[:, 0].cumsum(0), dim=0),
    "adaptive average pool to one": lambda r: F.adaptive_avg_pool1d(columns(r), 1),
    "adaptive average pool": lambda r: F.adaptive_avg_pool1d(columns(r), 3),
    "adaptive maximum pool to one": lambda r: F.adaptive_max_pool1d(columns(r), 1),
    "adaptive maximum pool": lambda r: F.adaptive_max_pool1d(columns(r), 3),
    "adaptive pool of columns": lambda r: F.adaptive_max_pool1d(r[:, None], 2) + F.adaptive_avg_pool1d(r[:, None], 2),
    "fft": lambda r: torch.view_as_real(torch.fft.fft(r, dim=0)),
    "fft of a length": lambda r: torch.view_as_real(torch.fft.fft(r, n=6, dim=0)),
    "ifft": lambda r: torch.view_as_real(torch.fft.ifft(r, dim=0).resolve_conj()),
    "rfft": lambda r: torch.view_as_real(torch.fft.rfft(r, dim=0)),
    "rfft of a length": lambda r: torch.view_as_real(torch.fft.rfft(r, n=8, dim=0)),
    "rfft of columns": lambda r: torch.view_as_real(torch.fft.rfft(r)),
    "irfft of columns": lambda r: torch.fft.irfft(torch.fft.rfft(r), n=4),
    "fft2": lambda r: torch.view_as_real(torch.fft.fft2(pictures(r))),
    "rfft2": lambda r: torch.view_as_real(torch.fft.rfft2(pictures(r))),
}

#: Those that ask in Python whether there is anything.
ASKING: dict[str, _Function] = {
    "logsumexp of rows": lambda r: r.logsumexp(0),
    "logsumexp of columns": lambda r: r.logsumexp(-1, keepdim=True),
    "logsumexp": lambda r: r.logsumexp((0, 1)),
    "cummax of rows": lambda r: r.cummax(0).values,
    "places of cummax": lambda r: r.cummax(0).indices,
    "cummin of columns": lambda r: r.cummin(1).values,
    "roll": lambda r: r.roll(1),
    "roll of rows": lambda r: r.roll(-3, 0),
    "roll of both": lambda r: r.roll((1, 2), (0, 1)),
    "channel shuffle": lambda r: F.channel_shuffle(pictures(r), 2),
    "local response norm": lambda r: F.local_response_norm(pictures(r), 3),
    "local response norm of signals": lambda r: F.local_response_norm(pictures(r).flatten(2), 2),
    "take": lambda r: torch.take(r, torch.tensor([0, 1, 3])),
    "fftshift": lambda r: torch.fft.fftshift(r, 0),
}

OF_PICTURES: dict[str, _Function] = {
    "bilinear, antialiased": lambda r: F.interpolate(pictures(r), size=(3, 3), mode="bilinear", antialias=True),
    "bicubic, antialiased": lambda r: F.interpolate(pictures(r), size=(3, 3), mode="bicubic", antialias=True),
}

#: torch does less than 26 rows of `cdist` in one way and more in another.
COUNTS = (0, 1, 2, 3, 5, 8, 25, 26, 30)
_ROWS = 33


def drawn(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows, and a mask that keeps so many of them."""
    mask = torch.zeros(_ROWS, dtype=torch.bool)
    mask[torch.randperm(_ROWS)[:count]] = True
    return torch.randn(_ROWS, 4), mask


def is_right(function: _Function, counts: tuple[int, ...] = COUNTS) -> None:
    """The file and the exported program are as eager mode is; what that refuses they may refuse."""
    model = OfChosen(function).eval()
    onnx = to_onnx(model, drawn(5), dynamic_shapes=({0: "rows"}, {0: "rows"}))
    with torch_export_patches():
        axes = {0: torch.export.Dim.DYNAMIC}
        program = torch.export.export(model, drawn(5), dynamic_shapes=(axes, axes)).module()
    for count in counts:
        x, mask = drawn(count)
        try:
            expected = model(x, mask)
        except (RuntimeError, IndexError):
            assert count == 0
            continue
        got_of_program = expected
        with contextlib.suppress(RuntimeError) if count == 0 else contextlib.nullcontext():  # it may check that
            got_of_program = program(x, mask)
        got_of_file = onnx.run({"x": x, "mask": mask}).values()
        for got, wanted in zip((*got_of_file, *got_of_program), (*expected, *expected), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-4, equal_nan=True)


def _are_right(functions: dict[str, _Function], *names: str) -> Callable[[], None]:
    def program() -> None:
        for name in names:
            is_right(functions[name], (0, 1, 7))

    return program


PROGRAMS = {
    "shapes of rows of data": _are_right(COMPOSITES, "batch norm", "diff", "tensordot over rows"),
    "questions of no rows": _are_right(ASKING, "logsumexp of rows", "roll", "local response norm"),
}
