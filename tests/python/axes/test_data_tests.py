"""What a trial puts in the place of torch's methods is taken back, however far it came."""

from __future__ import annotations

import pytest
import torch

from exportguard.axes import data_tests


def test_an_interrupt_while_methods_are_replaced_leaves_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting:
        @property
        def item(self) -> object:
            raise KeyboardInterrupt

    names = ("item", "tolist", "__bool__")
    before = [(name in vars(torch.Tensor), getattr(torch.Tensor, name)) for name in names]
    monkeypatch.setattr(data_tests, "_OWNERS", [*data_tests._OWNERS, (Interrupting(), "item")])
    with pytest.raises(KeyboardInterrupt), data_tests.data_tests():
        raise AssertionError("it never begins")
    assert [(name in vars(torch.Tensor), getattr(torch.Tensor, name)) for name in names] == before
