"""Random programs are right or refused; `random_programs.py` checks as many as wanted."""

from __future__ import annotations

import pytest
import random_programs

SEEDS = range(0, 12)


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, 4))
def test_random_programs_are_right_or_refused(first: int) -> None:
    for seed in range(first, first + 4):
        program, found = random_programs.checked(seed, with_onnx=seed % 4 == 0)
        assert not found.is_wrong, f"seed {seed}: {found}\n{program.source()}"
