"""Pools that count a last window which does not fill."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from called import Called
from exportguard import to_onnx

POOLS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: functional.max_pool2d(x, 3, 3, 1, ceil_mode=True),
    lambda x: functional.max_pool2d(x, 1, 3, ceil_mode=True),
    lambda x: functional.max_pool2d(x, 2, 2, 0, 2, ceil_mode=True),
    lambda x: functional.avg_pool2d(x, (3, 2), (3, 2), 1, ceil_mode=True),
    lambda x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
]


def counts_windows_at_every_size() -> None:
    for pool in POOLS:
        shapes = ({2: "height", 3: "width"},)
        model = to_onnx(Called(pool).eval(), (torch.randn(2, 3, 7, 8),), dynamic_shapes=shapes)
        for sizes in [(height, width) for height in range(4, 12) for width in (5, 6, 7, 10)]:
            x = torch.randn(2, 3, *sizes)
            (got,) = model.run({"x": x}).values()
            torch.testing.assert_close(got, pool(x))


PROGRAMS = {"pools rounded up": counts_windows_at_every_size}
