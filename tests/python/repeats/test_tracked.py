"""A dictionary of living tensors: found by identity, never by an address that another tensor has by now."""

from __future__ import annotations

import gc

import pytest
import torch

from exportguard.repeats.tracked import Tracked


def test_tensors_are_found_by_identity_and_not_by_their_values() -> None:
    one, other = torch.ones(2), torch.ones(2)
    tracked = Tracked({})
    tracked[one] = "one"
    assert one in tracked
    assert other not in tracked
    assert tracked.get(other) is None
    with pytest.raises(KeyError):
        tracked[other]


def test_a_later_value_takes_the_place_of_an_earlier_one() -> None:
    tensor = torch.ones(2)
    tracked = Tracked({})
    tracked[tensor], tracked[tensor] = "before", "after"
    assert tracked[tensor] == "after"
    del tracked[tensor]
    assert tensor not in tracked


def test_a_tensor_at_the_address_of_a_dead_one_is_not_known() -> None:
    tracked = Tracked({})
    for _ in range(2000):
        tensor = torch.empty(0)
        assert tensor not in tracked
        tracked[tensor] = "known"
        del tensor
    gc.collect()
    assert len(tracked) == 0


def test_the_dead_are_forgotten_and_the_living_kept() -> None:
    living = [torch.ones(1) for _ in range(5)]
    tracked = Tracked({})
    for tensor in living:
        tracked[tensor] = 1
    for _ in range(5000):
        tracked[torch.empty(0)] = 2
    assert len(tracked._entries) < 3000
    assert [*tracked.values()] == [1] * 5
    assert all(found is tensor for found, tensor in zip(tracked, living, strict=True))


def test_a_view_whose_python_object_was_given_up_is_found_again() -> None:
    holder = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2))])
    tracked = Tracked({holder[0]: "parameter"})
    base = torch.ones(4)
    view = base[:2]
    tracked[view._base] = "base"
    del base
    assert tracked[view._base] == "base"
    assert [*tracked.values()] == ["parameter", "base"]
