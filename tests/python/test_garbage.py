"""Python's garbage collector during an export."""

from __future__ import annotations

import gc

import pytest
import torch

from exportguard import to_onnx
from exportguard.garbage import old_objects_left_alone


class Failing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert gc.get_freeze_count() > 0
        raise RuntimeError("the model's own")


def test_what_was_there_before_is_looked_at_again_after_an_export_that_fails() -> None:
    model = Failing()
    with pytest.raises(Exception, match="the model's own"):
        to_onnx(model, (torch.zeros(2),))
    assert gc.get_freeze_count() == 0


def test_an_export_within_another_does_not_end_it() -> None:
    with old_objects_left_alone():
        with old_objects_left_alone():
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_what_the_caller_has_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        with old_objects_left_alone():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
