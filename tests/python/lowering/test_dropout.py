from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Check

KINDS = (functional.dropout, functional.dropout2d, functional.alpha_dropout, functional.feature_alpha_dropout)
INPUT = torch.rand(20, 10, 2, 2) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_in_evaluation_is_the_input(kind: Callable[..., torch.Tensor], check: Check) -> None:
    check(lambda x: kind(x, 0.5, training=False) + 1, [INPUT])


@pytest.mark.parametrize("kind", [functional.dropout, functional.dropout2d])
@pytest.mark.parametrize("probability", [0.5, 1.0, 0.0], ids=str)
def test_dropout_in_training_scales_what_it_keeps(
    kind: Callable[..., torch.Tensor], probability: float, check: Check
) -> None:
    kept = 1 / (1 - probability) if probability < 1 else 0

    def is_dropout(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = kind(x, probability, training=True)
        return ((y == 0) | ((y / x - kept).abs() < 1e-4)).all(), (y == 0).any(), (y == 0).all()

    check(is_dropout, [INPUT])


def test_whole_channels_are_dropped(check: Check) -> None:
    def is_dropped_as_a_whole(x: torch.Tensor) -> torch.Tensor:
        is_zero = functional.dropout2d(x, 0.5, training=True) == 0
        return (is_zero == is_zero[:, :, :1, :1]).all()

    check(is_dropped_as_a_whole, [INPUT])


@pytest.mark.parametrize("kind", [functional.alpha_dropout, functional.feature_alpha_dropout])
def test_alpha_dropout_in_training(kind: Callable[..., torch.Tensor], check: Check) -> None:
    alpha = 1.7580993408473766
    scale = ((alpha**2 * 0.5 + 1) * 0.5) ** -0.5

    def is_dropout(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = kind(x, 0.5, training=True)
        is_dropped = (y + alpha * scale * 0.5).abs() < 1e-4
        is_kept = (y - x * scale - alpha * scale * 0.5).abs() < 1e-4
        return (is_dropped | is_kept).all(), is_dropped.any(), is_kept.any()

    check(is_dropout, [INPUT])


def test_native_dropout_gives_its_mask(check: Check) -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        y, mask = torch.native_dropout(x, 0.5, True)
        return (y - x * mask * 2).abs() < 1e-4

    check(masked, [INPUT])
    check(lambda x: torch.native_dropout(x, 0.5, False), [INPUT])
