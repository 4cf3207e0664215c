"""The arguments of a call, taken apart and put together again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from exportguard.inputs import CallInputs


def test_arguments_are_put_together_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    unflatten = pytree.tree_unflatten
    monkeypatch.setattr(pytree, "tree_unflatten", lambda *args: made.append(args) or unflatten(*args))  # type: ignore[func-returns-value]
    call = CallInputs((torch.zeros(2), [1, {"a": torch.ones(1)}]), {"flag": True})
    other = call.with_leaves([torch.ones(2), 2, torch.zeros(1), False])
    assert other.leaves()[1:2] == [2]
    assert not made
    assert torch.equal(other.args[0], torch.ones(2))
    assert other.args[1][0] == 2
    assert other.kwargs == {"flag": False}
    assert other.args is other.args
    assert len(made) == 1


def test_as_many_leaves_are_needed_as_there_are() -> None:
    with pytest.raises(ValueError, match="2 leaves are needed, got 1"):
        CallInputs((1, 2)).with_leaves([1])


def test_a_call_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        _ = CallInputs((1, 2)).with_leaves([1, 2]).others  # type: ignore[attr-defined]
