"""Distinct slices along a last axis, and fractional pools of volumes of any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from called import CalledWithAll
from exportguard import to_onnx


def _is_right(
    function: Callable[..., object], axes: tuple[dict[int, str], ...], calls: Sequence[tuple[torch.Tensor, ...]]
) -> None:
    model = to_onnx(CalledWithAll(function).eval(), calls[0], dynamic_shapes=(axes,))
    for given in calls:
        got = model.run({value.name: x for value, x in zip(model.inputs, given, strict=True)}).values()
        for made, wanted in zip(got, torch.utils._pytree.tree_leaves(function(*given)), strict=True):
            torch.testing.assert_close(torch.as_tensor(made), wanted, rtol=0, atol=0)


def gives_shapes() -> None:
    slices = [(torch.randint(0, 2, size),) for size in [(2, 9), (1, 12), (3, 1), (2, 0)]]
    for dim in (-1, 1, -2):
        _is_right(
            lambda x, dim=dim: torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=dim),
            ({0: "rows", 1: "columns"},),
            slices[:3],
        )
    _is_right(lambda x: x.unique_consecutive(dim=-1), ({1: "columns"},), [slices[0], slices[3]])

    pool = torch.nn.functional.fractional_max_pool3d
    sizes = [(2, 3, 6, 7, 5), (1, 3, 5, 9, 8), (3, 3, 12, 4, 4)]
    volumes = [(torch.randn(size), torch.rand(*size[:2], 3)) for size in sizes]
    axes = ({0: "batch", 2: "depth", 3: "height", 4: "width"}, {0: "batch"})
    _is_right(
        lambda x, samples: pool(x, 2, output_size=(3, 2, 2), return_indices=True, _random_samples=samples),
        axes,
        volumes,
    )


def chooses_among_chosen() -> None:
    def chosen(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x[x[:, 0] > 0]
        return rows.masked_select(rows > 0.5), rows[rows < 0.3], rows.masked_select(rows[:, :1] > 0.5).reshape(-1, 1)

    _is_right(chosen, ({0: "rows"},), [(torch.randn(rows, 4),) for rows in (6, 3, 9)] + [(-torch.ones(2, 4),)])


PROGRAMS = {"shapes of fake kernels": gives_shapes, "counts of 64 bits": chooses_among_chosen}
