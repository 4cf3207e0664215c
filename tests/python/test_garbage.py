"""Python's garbage collector during an export."""

from __future__ import annotations

import gc

import pytest
import torch

from exportguard import to_onnx
from exportguard.garbage import without_collections


class Failing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(f"full collections after {gc.get_threshold()[2]}")


def test_full_collections_wait_for_the_end_of_an_export_also_of_one_that_fails() -> None:
    before = gc.get_threshold()
    with pytest.raises(Exception, match=r"full collections after \d{9}"):
        to_onnx(Failing(), (torch.zeros(2),))
    assert gc.get_threshold() == before


def test_nothing_is_collected_while_a_block_imports_and_a_collector_that_was_off_stays_off() -> None:
    with without_collections(), without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def _is_old(item: object) -> bool:
    return any(other is item for other in gc.get_objects(generation=2))


def test_what_a_block_imports_is_old_behind_it_and_may_be_collected() -> None:
    with without_collections():
        circle: list[object] = []
        circle.append(circle)
        assert not _is_old(circle)
    assert _is_old(circle)
    assert gc.get_freeze_count() == 0
    assert circle in gc.get_referrers(circle)


def test_what_somebody_has_frozen_stays_so() -> None:
    frozen: list[object] = []
    gc.freeze()
    try:
        with without_collections():
            pass
        assert not any(each is frozen for each in gc.get_objects())  # what is frozen is in no generation
    finally:
        gc.unfreeze()
