"""What all tests share: the same random numbers in each run, and a library that says what it has to say."""

from __future__ import annotations

import logging
import random

import numpy as np
import pytest
import torch


def seed_everything() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


seed_everything()  # for the numbers that a file makes where it is read, in the lists of its parameters


@pytest.fixture(autouse=True)
def _the_same_numbers_in_each_run() -> None:
    seed_everything()


@pytest.fixture(autouse=True)
def _no_test_is_quiet_because_of_another() -> None:
    logging.getLogger("exportguard").setLevel(logging.NOTSET)  # which a command line with -q has set
