"""A NaN or an infinite number in one sample of a batch leaves all others as they are: no kernel adds zero times it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional
from torch.utils import _pytree as pytree

from called import Called
from exportguard import to_onnx

Function = Callable[[torch.Tensor], object]


def regular(x: torch.Tensor) -> torch.Tensor:
    """Matrices that are symmetric and positive definite, of matrices of any numbers."""
    return x @ x.mT + torch.eye(x.shape[-1])


SIGNALS: dict[str, Function] = {
    "linear": lambda x: functional.interpolate(x, scale_factor=1.7, mode="linear"),
    "linear to a size": lambda x: functional.interpolate(x, size=4, mode="linear", align_corners=True),
    "nearest": lambda x: functional.interpolate(x, scale_factor=2),
    "convolution": lambda x: functional.conv1d(x, torch.ones(3, 3, 3), padding=1),
    "transposed convolution": lambda x: functional.conv_transpose1d(x, torch.ones(3, 2, 3), stride=2),
    "largest in windows": lambda x: functional.max_pool1d(x, 2),
    "means in windows": lambda x: functional.avg_pool1d(x, 3, padding=1),
    "adaptive means": lambda x: functional.adaptive_avg_pool1d(x, 3),
    "reflected ends": lambda x: functional.pad(x, (2, 1), mode="reflect"),
    "normalized channels": lambda x: functional.instance_norm(x),
    "normalized groups": lambda x: functional.group_norm(x, 3),
    "normalized rows": lambda x: functional.layer_norm(x, (6,)),
    "Fourier": lambda x: torch.view_as_real(torch.fft.rfft(x)),
    "windows of Fourier": lambda x: torch.view_as_real(
        torch.stft(x[:, 0], 4, window=torch.ones(4), return_complex=True)
    ),
    "sums so far": lambda x: x.cumsum(-1),
    "sorted": lambda x: x.sort(-1).values,
    "quantile": lambda x: torch.quantile(x, 0.3, dim=-1),
    "median": lambda x: x.median(-1).values,
    "softmax": lambda x: x.softmax(-1),
    "attention": lambda x: functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True),
    "cosine": lambda x: functional.cosine_similarity(x, x.flip(-1), dim=-1),
    "distances": lambda x: torch.cdist(x, x),
    "margins": lambda x: functional.multi_margin_loss(x[:, 0], torch.tensor([1, 0, 2]), reduction="none"),
    "margins of several labels": lambda x: functional.multilabel_margin_loss(
        x[:, 0], torch.tensor([[1, 3, -1, 0, 0, 0], [2, -1, 0, 0, 0, 0], [-1, 0, 0, 0, 0, 0]]), reduction="none"
    ),
}
MATRICES: dict[str, Function] = {
    "exponential": torch.matrix_exp,
    "exponential of large ones": lambda x: torch.matrix_exp(3 * x),
    "inverse": torch.linalg.inv,
    "determinant": torch.linalg.det,
    "solution": lambda x: torch.linalg.solve(x, torch.ones(4, 2)),
    "triangle": lambda x: torch.linalg.solve_triangular(x, torch.ones(4, 2), upper=True),
    "power": lambda x: torch.linalg.matrix_power(x, 3),
    "Cholesky": lambda x: torch.linalg.cholesky_ex(regular(x))[0],
    "factors of LU": lambda x: torch.linalg.lu_factor_ex(x)[0],
    "trace": lambda x: x.diagonal(dim1=-2, dim2=-1).sum(-1),
    "quadratic form": lambda x: torch.einsum("bij,bkj->bik", x, x),
}
PICTURES: dict[str, Function] = {
    "bilinear": lambda x: functional.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "bicubic": lambda x: functional.interpolate(x, size=(7, 3), mode="bicubic"),
    "antialiased": lambda x: functional.interpolate(x, size=(3, 2), mode="bilinear", antialias=True),
    "convolution of groups": lambda x: functional.conv2d(x, torch.ones(2, 1, 3, 3), padding=1, groups=2),
    "patches": lambda x: functional.unfold(x, 2),
    "sampled": lambda x: functional.grid_sample(x, torch.full((3, 2, 2, 2), 0.3), align_corners=False),
    "shuffled": lambda x: functional.pixel_unshuffle(x[..., :4, :4], 2),
}
CALLS = {
    **{name: (function, (3, 3, 6)) for name, function in SIGNALS.items()},
    **{name: (function, (3, 4, 4)) for name, function in MATRICES.items()},
    **{name: (function, (3, 2, 5, 6)) for name, function in PICTURES.items()},
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", CALLS)
def test_a_number_of_one_sample_leaves_the_others(name: str) -> None:
    function, sizes = CALLS[name]
    drawing = random.Random(name)
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(5))
    model = to_onnx(Called(function), (x,))
    for number in (math.nan, math.inf, -math.inf):
        for _ in range(4):
            sample = drawing.randrange(3)
            given = x.clone()
            given[sample].view(-1)[drawing.randrange(given[sample].numel())] = number
            expected = pytree.tree_leaves(function(given))
            got = list(model.run({model.inputs[0].name: given}).values())
            others = [place for place in range(3) if place != sample]
            for a, b in zip(got, expected, strict=True):
                assert b[others].isfinite().all()
                torch.testing.assert_close(a[others], b[others], rtol=1e-4, atol=1e-4)
