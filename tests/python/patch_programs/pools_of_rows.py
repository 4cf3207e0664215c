"""Adaptive maxima of pictures of which one axis stays."""

from __future__ import annotations

from collections.abc import Callable

import torch

from called import Called
from exportguard import to_onnx

_pool: Callable[..., object] = torch.nn.functional.adaptive_max_pool2d

FUNCTIONS: dict[str, Callable[[torch.Tensor], object]] = {
    "one column": lambda x: _pool(x, (None, 1)),
    "three columns": lambda x: _pool(x, (None, 3)),
    "three columns and places": lambda x: _pool(x, (None, 3), return_indices=True),
    "two rows": lambda x: _pool(x, (2, None)),
    "two rows and places": lambda x: _pool(x, (2, None), return_indices=True),
    "as many rows as there are": lambda x: _pool(x, (x.shape[-2], 2), return_indices=True),
    "without a batch": lambda x: _pool(x[0], (None, 3), return_indices=True),
    "by the module": torch.nn.AdaptiveMaxPool2d((None, 2)),
    "of known sizes": lambda x: _pool(x, (2, 3), return_indices=True),
}


def is_right(function: Callable[[torch.Tensor], object]) -> None:
    onnx = to_onnx(Called(function).eval(), (torch.randn(2, 3, 8, 9),), dynamic_shapes=({0: "b", 2: "h", 3: "w"},))
    for sizes in ((2, 3, 8, 9), (1, 3, 5, 4), (3, 3, 2, 13)):
        for x in (torch.randn(sizes), torch.randint(3, sizes).float()):
            expected = torch.utils._pytree.tree_leaves(function(x))
            for got, wanted in zip(onnx.run({"x": x}).values(), expected, strict=True):
                torch.testing.assert_close(got, wanted)


def _all() -> None:
    for function in FUNCTIONS.values():
        is_right(function)


PROGRAMS = {"maxima of rows of pictures": _all}
