"""torch.distributions in a model: their checks of arguments are tests on data, as a model's own are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import distributions
from torch.distributions import Bernoulli, Categorical, Gamma, Independent, MixtureSameFamily, Normal, Poisson

from exportguard import ExportError, to_onnx
from exportguard.model_code import is_models, is_users


def squashed(mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    tanh = distributions.transforms.TanhTransform(cache_size=1)
    return distributions.TransformedDistribution(Normal(mean, deviation), [tanh]).log_prob(torch.tanh(mean) * 0.9)


def divergence(mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    return distributions.kl_divergence(Normal(mean, deviation), Normal(torch.zeros_like(mean), 1.0))


USES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "normal": lambda m, d: Normal(m, d, validate_args=True).log_prob(m + 1),
    "normal of numbers": lambda m, d: Normal(0.0, 1.0).log_prob(m * d),
    "categorical": lambda m, d: Categorical(logits=m).log_prob(d.argmax(-1)) + Categorical(logits=m).entropy(),
    "bernoulli": lambda m, d: Bernoulli(logits=m).log_prob((m > 0).float()),
    "independent": lambda m, d: Independent(Normal(m, d), 1).log_prob(m * 0.5),
    "mixture": lambda m, d: MixtureSameFamily(Categorical(logits=m), Normal(m, d)).log_prob(m[:, 0]),
    "gamma, poisson": lambda m, d: Gamma(d, d).log_prob(d + 0.1) + Poisson(d).log_prob(d.round()),
    "transformed": squashed,
    "divergence": divergence,
}


class Use(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.use = USES[name]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, deviation = x.chunk(2, 1)
        return self.use(mean, deviation.exp())


@pytest.mark.parametrize("name", USES)
def test_equals_eager_at_other_sizes(name: str) -> None:
    model = Use(name).eval()
    converted = to_onnx(model, (torch.randn(3, 8),), dynamic_shapes=({0: "batch"},), rewrite="auto")
    for rows in (1, 3, 6):
        x = torch.randn(rows, 8)
        (found,) = converted.run({"x": x}).values()
        torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)


def test_without_rewriting_the_line_of_the_model_is_named() -> None:
    with pytest.raises(ExportError, match=r'(?s)stopped at .*test_distributions.py:\d+ .*pass rewrite="auto"'):
        to_onnx(Use("normal"), (torch.randn(3, 8),))


def test_distributions_are_models_and_not_the_users() -> None:
    file = distributions.normal.__file__
    assert is_models(file)
    assert not is_users(file)
    assert not is_models(torch.nn.functional.__file__)
