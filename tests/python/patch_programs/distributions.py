"""Distributions within a model: what they make of their parameters, without a look at the data."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import distributions as d
from torch.nn import functional

from called import Called
from exportguard import to_onnx

OF_ROWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "normal": lambda x: d.Normal(x, x.exp()).log_prob(x + 1) + d.Normal(0.0, 1.0).cdf(x),
    "categorical": lambda x: d.Categorical(logits=x).entropy() + d.Categorical(x.softmax(-1)).probs.sum(-1),
    "of classes": lambda x: d.Categorical(logits=x).log_prob(x.argmax(-1)),
    "bernoulli": lambda x: d.Bernoulli(logits=x).log_prob((x > 0).float()),
    "rows that are independent": lambda x: d.Independent(d.Normal(x, 1.0), 1).log_prob(x * 2),
    "gamma": lambda x: d.Gamma(x.abs() + 1, functional.softplus(x) + 0.1).mean,
    "divergence": lambda x: d.kl_divergence(d.Normal(x, x.exp()), d.Normal(torch.zeros_like(x), 1.0)),
    "its mean": lambda x: d.LogNormal(x, 0.5).mean,
}


def distributions() -> None:
    for function in OF_ROWS.values():
        x = torch.randn(4, 6)
        model = to_onnx(Called(function).eval(), (x,), dynamic_shapes=({0: "rows", 1: "columns"},))
        for sizes in [(4, 6), (1, 1), (7, 3)]:
            x = torch.randn(sizes)
            (got,) = model.run({"x": x}).values()
            torch.testing.assert_close(got, function(x), rtol=1e-4, atol=1e-5)


PROGRAMS = {"checks of distributions": distributions}
