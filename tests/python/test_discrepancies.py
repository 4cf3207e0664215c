"""The comparison of outputs: what differs, by how much, and what may not differ at all."""

from __future__ import annotations

import math

import pytest
import torch

from exportguard.validation.discrepancies import Tolerance, can_tell, compare, compare_outputs, tolerance_for

CLOSE = Tolerance(absolute=1e-3, relative=0.0)
NAN, INF = math.nan, math.inf


def tensor(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def test_equal_values_agree() -> None:
    assert compare("y", tensor(1, 2), tensor(1, 2), CLOSE).agrees


def test_the_largest_differences_and_the_share_over_the_tolerance_are_measured() -> None:
    found = compare("y", tensor(1, 2, 4, 8), tensor(1, 2, 4.5, 8), CLOSE)
    assert (found.max_absolute, found.max_relative, found.share_over) == (0.5, 0.125, 0.25)
    assert not found.agrees


def test_the_relative_tolerance_grows_with_the_expected_value() -> None:
    loose = Tolerance(absolute=0.0, relative=0.01)
    assert compare("y", tensor(100), tensor(100.5), loose).agrees
    assert not compare("y", tensor(1), tensor(1.5), loose).agrees


PROBLEMS = {
    "dtype": (tensor(1), tensor(1, dtype=torch.float64), "dtype torch.float64 instead of torch.float32"),
    "shape": (tensor(1, 2), tensor(1), "shape (1,) instead of (2,)"),
    "a NaN that is missing": (tensor(NAN, 1), tensor(0, 1), "NaN or infinity in 1 other places"),
    "a NaN that is new": (tensor(0, 1), tensor(NAN, NAN), "NaN or infinity in 2 other places"),
    "an infinity of the other sign": (tensor(INF), tensor(-INF), "NaN or infinity in 1 other places"),
}


@pytest.mark.parametrize(("expected", "got", "problem"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_cannot_be_compared_is_a_problem(expected: torch.Tensor, got: torch.Tensor, problem: str) -> None:
    found = compare("y", expected, got, CLOSE)
    assert found.problem == problem
    assert not found.agrees


def test_nan_and_infinity_in_the_same_places_agree() -> None:
    values = tensor(NAN, INF, -INF, 1)
    assert compare("y", values, values.clone(), CLOSE).agrees


def test_an_empty_output_agrees() -> None:
    assert compare("y", torch.zeros(0, 3), torch.zeros(0, 3), CLOSE).agrees


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8], ids=str)
def test_integers_and_booleans_are_exact(dtype: torch.dtype) -> None:
    values = tensor(1, 0, dtype=dtype)
    assert compare("y", values, values, tolerance_for(dtype)).agrees
    assert not compare("y", values, tensor(0, 0, dtype=dtype), tolerance_for(dtype)).agrees


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_each_tolerance_allows_some_rounding_and_no_error_of_a_tenth(dtype: torch.dtype) -> None:
    one = torch.ones(1, dtype=dtype)
    epsilon = torch.finfo(dtype).eps
    assert compare("y", one, one * (1 + 4 * epsilon), tolerance_for(dtype)).agrees
    assert not compare("y", one, one * 1.25, tolerance_for(dtype)).agrees


def test_another_number_of_outputs_is_one_problem() -> None:
    (found,) = compare_outputs(["a", "b"], [tensor(1), tensor(2)], [tensor(1)])
    assert found.problem == "1 outputs instead of 2"


def test_outputs_are_compared_under_their_names() -> None:
    found = compare_outputs(["a", "b"], [tensor(1), tensor(2)], [tensor(1), tensor(3)])
    assert [(one.name, one.agrees) for one in found] == [("a", True), ("b", False)]


TELLING = {
    "a single value": ([tensor(0)], True),
    "values that differ": ([tensor(0, 1)], True),
    "one of two outputs": ([tensor(1, 1), tensor(1, 2)], True),
    "numbers beside NaN": ([tensor(NAN, 1, 2)], True),
    "zeros": ([tensor(0, 0)], False),
    "NaN": ([tensor(NAN, NAN), tensor(NAN)], False),
    "one number beside infinities": ([tensor(INF, 1, -INF)], False),
    "flags that are all set": ([tensor(1, 1, dtype=torch.bool)], False),
    "no values": ([torch.zeros(0, 3)], False),
    "no outputs": ([], False),
}


@pytest.mark.parametrize(("outputs", "tells"), TELLING.values(), ids=TELLING)
def test_a_comparison_that_cannot_fail_is_none(outputs: list[torch.Tensor], tells: bool) -> None:
    assert can_tell(outputs) is tells
