"""Random numbers of the user: trials draw the same ones each, and those outside go on as before, on every device."""

from __future__ import annotations

import pytest
import torch

from exportguard import to_onnx
from exportguard.devices import same_random_numbers


class Noisy(torch.nn.Module):
    """Its numbers are the same for every size, which a trial finds out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.nn.functional.dropout(x, 0.5, training=False) * 2


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What CUDA is told to begin with; one that nobody has used yet remembers it."""
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    torch.manual_seed(7)
    assert seeds == [7]
    return seeds


def test_numbers_within_are_the_same_and_those_outside_go_on() -> None:
    torch.manual_seed(7)
    expected = [torch.rand(()) for _ in range(2)]
    torch.manual_seed(7)
    got = [torch.rand(())]
    drawn = []
    for seed in (0, 0, 1):
        with same_random_numbers(seed):
            assert not torch.is_grad_enabled()
            drawn.append(torch.rand(()))
    got.append(torch.rand(()))
    assert got == expected
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_cuda_that_nobody_has_used_yet_begins_with_the_seed_of_the_user(told: list[int]) -> None:
    with same_random_numbers(3):
        pass
    to_onnx(Noisy(), (torch.randn(2, 3),), dynamic_shapes=({0: "batch"},))
    assert told == [7]


def test_a_cuda_that_is_in_use_draws_the_same_and_goes_on(told: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    states = {0: "before", 1: "before"}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", states.__getitem__)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.update({device: state}))
    monkeypatch.setattr(
        torch.cuda, "manual_seed_all", lambda seed: states.update(dict.fromkeys(states, f"seed {seed}"))
    )
    with same_random_numbers(3):
        assert set(states.values()) == {"seed 3"}
    assert set(states.values()) == {"before"}
