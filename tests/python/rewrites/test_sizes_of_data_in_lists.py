"""Lists of tensors whose sizes data decide each: torch takes those in one list for equal, and no file checks it.

The example has them equal. `python test_sizes_of_data_in_lists.py --count 300` checks more than a test run does.
"""

from __future__ import annotations

import itertools
import random
import textwrap

import pytest
import torch
from drawn_programs import HEAD, WRONG, check_by_hand, outcome_of

TENSORS = (
    ("x[x[:, 0] > 0]", "x[x[:, 1] > 0]"),
    ("x[x[:, 0] > 0]", "x[x[:, 0] <= 0] * 2"),
    ("x[x[:, 0] > 0].sum(1)", "x[x[:, 2] > 0][:, 1]"),
    ("x[: int((x[:, 1] > 0).sum())]", "x[x[:, 0] > 0] * 3"),
    ("x[x[:, 0] > 0].t()", "x[x[:, 1] > 0].t() * 2"),
)
LISTS = (
    "outs = [t for t in (a, b) if t.numel() > 0]",
    "outs = [t for t in (a, b) if t.sum() > 0]",
    "outs = []\nfor t in (a, b):\n    if t.numel() > 0:\n        outs.append(t)",
    "outs = [a]\nif x.sum() > 0:\n    outs.append(b)",
    "outs = [a]\nif x.sum() > 0:\n    outs = [a, b]",
    "outs = []\nif x.sum() > 0:\n    outs.append(a)\nelse:\n    outs.append(b)",
    "if x.sum() > 0:\n    outs = [a, b]\nelse:\n    outs = [b, a]",
    "outs = []\nfor row in x:\n    outs.append(a + 1)\n    outs.append(b)",
    "outs = []\nfor row in x:\n    outs.append(a if row.sum() > 0 else b)",
    "outs = [b]\nfor row in x:\n    outs.append(a)",
    "outs = [b]\nfor row in x:\n    if row[2] > 0:\n        outs.append(a)",
    "outs = []\nfor r in x:\n    if r[2] > 0:\n        outs.append(a)\n    else:\n        outs.append(b)",
    "outs = [a]\ni = 0\nwhile i < len(x) and len(outs) < 3:\n    if x[i, 2] > 0:\n        outs.append(b)\n    i += 1",
    "outs = [None] * x.shape[0]\nfor i in range(x.shape[0]):\n    outs[i] = a if x[i, 0] > 0 else b",
    "outs = [(a, b)]\nif x.sum() > 0:\n    outs.append((b, a))\nouts = [one for one, _ in outs]",
    "outs = []\nfor i in range(len(x)):\n    r = x[:i][x[:i, 0] > 0]\n    if len(r):\n        outs.append(r)",
)
READS = (
    "return torch.cat(outs, -1)",
    "return torch.cat(outs) if outs else x[:0]",
    "return torch.stack([t.sum() for t in outs])",
    "return torch.tensor([t.numel() for t in outs], dtype=torch.int64)",
    "return outs[-1] * 2",
    "y = x[0, 0]\nfor t in outs:\n    y = y * 0.5 + t.sum()\nreturn y",
    "return torch.stack(outs)",
    "return x[0] * len(outs) + sum([t.sum() for t in outs])",
)

GRID = [*itertools.product(TENSORS, LISTS, READS)]


def source_of(seed: int) -> str:
    """The program of a number: all of them in an order of chance."""
    tensors, made, read = GRID[random.Random(0).sample(range(len(GRID)), len(GRID))[seed % len(GRID)]]
    lines = f"a, b = {tensors[0]}, {tensors[1]}\n{made}\n{read}"
    return f"{HEAD}{textwrap.indent(lines, ' ' * 8)}\n"


def outcome(seed: int) -> str:
    """What became of the program of a number."""
    draws = torch.Generator().manual_seed(seed)
    signs = torch.tensor(((1, 1, 1), (-1, 1, 1), (1, -1, 1), (-1, -1, -1), (1, 1, -1)), dtype=torch.float32)
    inputs = [torch.ones(4, 3)]
    inputs += [torch.rand(rows, 3, generator=draws) * sign for rows, sign in zip((4, 3, 5, 2, 6), signs, strict=True)]
    inputs += [torch.randn(rows, 3, generator=draws) for rows in (4, 1, 7, 5)]
    return outcome_of(f"/sizes/{seed}.py", source_of(seed), inputs, {0: "rows"}, least=2)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("first", range(0, 96, 4))
def test_tensors_of_sizes_of_data_are_right_or_refused(first: int) -> None:
    outcomes = {seed: outcome(seed) for seed in range(first, first + 4)}
    assert not {seed: found for seed, found in outcomes.items() if found.startswith(WRONG)}


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
