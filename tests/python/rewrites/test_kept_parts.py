"""Parts of a tensor that are kept before something goes through them: `parts = x.split(counts.tolist())`.

`python test_kept_parts.py --count 120` checks all programs.
"""

from __future__ import annotations

import textwrap

import pytest
from drawn_programs import Share, check_by_hand, outcome_at_rows

SPLIT = (
    "x.split(counts.tolist())",
    "torch.split(x, counts.tolist())",
    "torch.split(x, tuple(counts.tolist()), dim=0)",
    "x.split_with_sizes(counts.tolist())",
    "x.split([int(n) for n in counts], 0)",
    "list(x.split(counts.tolist()))",
    "x.split(2)",
    "torch.split(x, 3, 0)",
)
USES = (
    "return torch.stack([p.sum(0) for p in parts])",
    "return torch.cat([p.flip(0) for p in parts])",
    "return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)",
    "return parts[0].sum(0) + parts[-1].mean(0)",
    "return x.sum(0) * len(parts)",
    "out = []\nfor i in range(len(parts)):\n    out.append(parts[i].mean(0) + i)\nreturn torch.stack(out)",
    "return torch.stack([a.sum(0) - b.amax(0) for a, b in zip(parts, parts)])",
    "return torch.cat(parts[1:] + parts[:1])",
    "long = [p for p in parts if p.shape[0] > 1]\nreturn torch.cat([x[:1], *long])",
    "h = x.new_zeros(3)\nfor p in parts:\n    h = torch.tanh(h + p.sum(0))\nreturn h",
    "return torch.tensor([len(p) for p in parts])",
    "return self.joined(parts)",
    "out = x.new_zeros(len(parts), 3)\nfor i, p in enumerate(parts):\n    out[i] = p.amin(0)\nreturn out",
    "total = 0\nfor p in parts:\n    total = total + (p.sum(0) if p.sum() > 0 else p.mean(0))\nreturn total",
    "most = max(len(p) for p in parts)\n"
    "return torch.stack([torch.cat([p, p.new_zeros(most - len(p), 3)]) for p in parts])",
)
_HEAD = """\
import torch


class Model(torch.nn.Module):
    def joined(self, parts):
        return torch.cat([p - p.mean(0, keepdim=True) for p in parts])

    def forward(self, x):
        counts = torch.unique_consecutive(x[:, 0] > 0, return_counts=True)[1]
"""

_SHARE = Share(count=len(SPLIT) * len(USES), every=7, at_once=3, right=2)


def source_of(seed: int) -> str:
    """The program of a number."""
    use, split = divmod(seed, len(SPLIT))
    return _HEAD + textwrap.indent(f"parts = {SPLIT[split]}\n{USES[use]}\n", " " * 8)


def outcome(seed: int) -> str:
    """What became of the program of a number."""
    return outcome_at_rows(f"/kept_parts/{seed}.py", source_of(seed), seed)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_parts_that_are_kept_are_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
