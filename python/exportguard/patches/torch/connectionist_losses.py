"""`ctc_loss`, whose kernel reads the lengths of its sequences as numbers: here, a scan over the steps."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from exportguard.declaration.patch import Patch, needed_without_a_shape

# The package has a function of the same name.
_scan: Any = importlib.import_module("torch._higher_order_ops.scan")

# Without annotations in torch 2.11 to 2.13.
_check: Callable[[Any], None] = torch._check

_Lengths = torch.Tensor | Sequence[int] | int


def with_scan(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`torch.ctc_loss`, written in operators of any sizes while a program is made."""

    @functools.wraps(original)
    def ctc_loss(
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: _Lengths,
        target_lengths: _Lengths,
        blank: int = 0,
        reduction: int = 1,
        zero_infinity: bool = False,
    ) -> torch.Tensor:
        if not torch.compiler.is_exporting():
            return original(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
        batch = log_probs if log_probs.ndim == 3 else log_probs.unsqueeze(1)
        steps, lengths = (_as_vector(each) for each in (input_lengths, target_lengths))
        losses = _losses(batch, _rows(targets, lengths), steps, lengths, blank)
        if zero_infinity:
            losses = torch.where(losses == math.inf, 0, losses)
        if reduction == 0:
            return losses if log_probs.ndim == 3 else losses.squeeze(0)
        return (losses / lengths.clamp(min=1).to(losses.dtype)).mean() if reduction == 1 else losses.sum()

    return ctc_loss


def _as_vector(lengths: _Lengths) -> torch.Tensor:
    return torch.as_tensor(lengths).reshape(-1).long()


def _rows(targets: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """[batch, longest]: those that are joined to one vector are cut; what is behind the end of a row is never read."""
    if targets.ndim == 2:
        return targets.long()
    behind_end = torch.cat([targets.long(), torch.zeros(1, dtype=torch.long)])
    starts = lengths.cumsum(0) - lengths
    places = starts.unsqueeze(1) + torch.arange(targets.shape[0])
    return behind_end[places.clamp(max=targets.shape[0])]


def _shifted(x: torch.Tensor, by: int, number: torch.Tensor, what_comes_in: float = -math.inf) -> torch.Tensor:
    """The last axis moved on; what comes in has no chance. Each entry is looked up by its `number`, so that torch keeps
    the name of the size."""
    return torch.where(number < by, what_comes_in, x.index_select(1, (number - by).clamp(min=0)))


def _losses(
    log_probs: torch.Tensor, rows: torch.Tensor, steps: torch.Tensor, lengths: torch.Tensor, blank: int
) -> torch.Tensor:
    """[batch]: of each sequence, minus the logarithm of the chances of all its alignments, by the forward variables of
    Graves et al., "Connectionist Temporal Classification", ICML 2006: a row with a blank around each label."""
    blanks = torch.full_like(rows, blank)
    labels = torch.cat([torch.stack([blanks, rows], 2).flatten(1), torch.full_like(lengths, blank).unsqueeze(1)], 1)
    number = torch.arange(labels.shape[1])
    may_skip = (labels != blank) & (labels != _shifted(labels, 2, number, blank)) & (number >= 2)
    said = log_probs.gather(2, labels.expand(log_probs.shape[0], -1, -1))

    last = 2 * lengths.unsqueeze(1)
    first = torch.where((number < 2) & (number <= last), 0.0, -math.inf).to(log_probs.dtype)

    def step(before: torch.Tensor, given: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        chances, turn = given
        for other in (chances, may_skip, number):  # torch has a name for each one's size here, if data count the labels
            _check(other.shape[-1] == before.shape[1])
        one, two = (_shifted(before, by, number) for by in (1, 2))
        ways = torch.stack([before, one, torch.where(may_skip, two, -math.inf)])
        after = torch.where(turn == 0, before, ways.logsumexp(0)) + chances
        after = torch.where((turn < steps).unsqueeze(1), after, before)
        return after, turn.clone()

    end, _ = _scan.scan(step, first, (said, torch.arange(log_probs.shape[0])), dim=0)
    behind_label = torch.where(last > 0, end.gather(1, (last - 1).clamp(min=0)), -math.inf)
    return -torch.cat([end.gather(1, last), behind_label], 1).logsumexp(1)


PATCHES = (
    Patch(
        name="losses of alignments",
        kind="torch",
        target="torch.ctc_loss",
        reason="ctc_loss stops a trace: its kernel reads the lengths of the sequences as numbers",
        upstream="https://github.com/pytorch/pytorch/pull/86293",
        probe=lambda: needed_without_a_shape(torch.ops.aten._ctc_loss.Tensor, "the loss"),
        replace=with_scan,
    ),
)
