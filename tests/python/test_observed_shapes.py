"""Dynamic shapes found out from inputs of several sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from exportguard import make_dynamic_cache, torch_export_patches
from exportguard.errors import InvalidArgumentError
from exportguard.observed_shapes import observed_dynamic_shapes

SIZES = {"batch": 2, "seq": 3, "past": 5}


def test_each_axis_is_named_after_the_size_that_it_follows() -> None:
    shapes = observed_dynamic_shapes(lambda s: {"x": torch.zeros(s["batch"], 4, s["seq"])}, SIZES)
    assert shapes == {"x": {0: "batch", 2: "seq"}}


def test_an_axis_that_follows_two_sizes_is_named_after_both() -> None:
    shapes = observed_dynamic_shapes(lambda s: {"mask": torch.zeros(s["past"] + s["seq"])}, SIZES)
    assert shapes == {"mask": {0: "past+seq"}}


def test_an_axis_that_grows_faster_than_its_size_has_a_name_of_its_own() -> None:
    shapes = observed_dynamic_shapes(lambda s: {"frames": torch.zeros(s["seq"] * 10)}, SIZES)
    assert shapes == {"frames": {0: "seq of frames"}}


def test_axes_that_grow_alike_by_several_and_are_as_long_share_a_name() -> None:
    def inputs(sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        tokens = 4 * sizes["rows"] + sizes["seq"]
        return {
            "ids": torch.zeros(2, tokens),
            "mask": torch.zeros(2, tokens),
            "patches": torch.zeros(16 * sizes["rows"], 3),
        }

    shapes = observed_dynamic_shapes(inputs, {"rows": 2, "seq": 5}, [{"rows": 3, "seq": 9}])
    assert shapes["ids"] == shapes["mask"] == {1: "rows of ids+seq"}
    assert shapes["patches"] == {0: "rows of patches"}


def test_axes_that_stop_following_their_size_have_names_of_their_own() -> None:
    def make_inputs(sizes: Mapping[str, int]) -> Any:
        past = sizes["past"]
        return [torch.zeros(past), torch.zeros(min(past, 7)), torch.zeros(min(past, 9)), torch.zeros(min(past, 7))]

    shapes = observed_dynamic_shapes(make_inputs, SIZES, [{**SIZES, "past": 20}])
    assert shapes == [{0: "past"}, {0: "past_bounded"}, {0: "past_bounded_2"}, {0: "past_bounded"}]


def test_an_integer_that_follows_a_size_is_named_too() -> None:
    shapes = observed_dynamic_shapes(lambda s: {"length": s["past"], "flag": True, "none": None}, SIZES)
    assert shapes == {"length": "past", "flag": None, "none": None}


def test_what_stays_the_same_is_not_asked_for() -> None:
    assert observed_dynamic_shapes(lambda s: {"x": torch.zeros(4)}, SIZES) == {"x": None}


def test_inputs_with_other_parts_at_other_sizes_are_refused() -> None:
    def make_inputs(sizes: Mapping[str, int]) -> Any:
        return [torch.zeros(1)] * sizes["batch"]

    with pytest.raises(InvalidArgumentError, match=r"other sizes have other parts \(3 instead of 2\)"):
        observed_dynamic_shapes(make_inputs, SIZES)


def test_axes_that_grow_alike_and_are_not_as_long_have_names_of_their_own() -> None:
    def inputs(sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        seq = sizes["seq"]
        return {"held": torch.zeros(10 + seq), "mask": torch.zeros(10 + seq), "text": torch.zeros(seq)}

    shapes = observed_dynamic_shapes(inputs, {"seq": 6})
    assert shapes == {"held": {0: "seq"}, "mask": {0: "seq"}, "text": {0: "seq_2"}}


def test_a_window_that_is_full_already_follows_the_size_with_which_it_is_shorter() -> None:
    def make_inputs(sizes: Mapping[str, int]) -> list[torch.Tensor]:
        batch, past = sizes["batch"], sizes["past"]
        return [torch.zeros(batch, past), torch.zeros(batch, min(past, 3)), torch.zeros(batch, 7)]

    others = [{"batch": 4, "past": 8}, {"batch": 2, "past": 0}, {"batch": 1, "past": 1}]
    shapes = observed_dynamic_shapes(make_inputs, {"batch": 2, "past": 5}, others)
    assert shapes == [{0: "batch", 1: "past"}, {0: "batch", 1: "past_bounded"}, {0: "batch"}]


def cached(sizes: Mapping[str, int]) -> dict[str, Any]:
    layer = torch.zeros(sizes["batch"], 2, sizes["past"], 4)
    window = torch.zeros(sizes["batch"], 2, min(sizes["past"], 6), 4)
    return {
        "mask": torch.ones(sizes["batch"], sizes["past"] + sizes["seq"]),
        "past_key_values": make_dynamic_cache([(layer, layer), (window, window)]),
    }


def test_a_cache_has_the_form_that_it_has_in_an_export() -> None:
    layer, window = {0: "batch", 2: "past"}, {0: "batch", 2: "past_bounded"}
    shapes = observed_dynamic_shapes(cached, SIZES, [{**SIZES, "past": 9}])
    assert shapes == {"mask": {0: "batch", 1: "past+seq"}, "past_key_values": [layer, layer, window, window]}
    with torch_export_patches(patch=False):
        assert observed_dynamic_shapes(cached, SIZES, [{**SIZES, "past": 9}]) == shapes
