"""Patches of torch, each with a program that behaves otherwise without it."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest
import torch
from torch.export import Dim
from transformers import DynamicCache

from exportguard import torch_export_patches
from exportguard.caches.build import make_dynamic_cache
from exportguard.patches.torch.static_axes import StaticAxisError


class FixesTheBatch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] == 4 else x - 1  # this line fixes it


AXES = {"DYNAMIC": Dim.DYNAMIC, "named": Dim("batch")}


def export(axis: Any, **guard: Any) -> torch.export.ExportedProgram:
    with torch_export_patches(**guard):
        return torch.export.export(FixesTheBatch(), (torch.zeros(4, 3),), dynamic_shapes=({0: axis},))


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_an_axis_that_became_static_is_logged(axis: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="exportguard"):
        program = export(axis)
    (placeholder,) = program.graph.find_nodes(op="placeholder")
    assert placeholder.meta["val"].shape == (4, 3)
    assert "an axis that was asked dynamic is not" in caplog.text


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_without_catch_constraints_it_is_an_error(axis: Any) -> None:
    with pytest.raises(Exception, match=r"specialized it to be a constant|inferred a static shape"):
        export(axis, catch_constraints=False)


@pytest.mark.parametrize("axis", [*AXES.values(), Dim.AUTO], ids=[*AXES, "AUTO"])
def test_stop_if_static_names_the_axis_and_the_line(axis: Any) -> None:
    with pytest.raises(StaticAxisError, match=r"x.*size\(\)\[0\].* becomes 4 at .*# this line fixes it"):
        export(axis, stop_if_static=1)


def test_stop_if_static_lets_dynamic_programs_pass() -> None:
    with torch_export_patches(stop_if_static=1):
        torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))


class Length(torch.nn.Module):
    def forward(self, cache: Any) -> Any:
        return cache.layers[0].keys * 2


def saved_program() -> io.BytesIO:
    cache = make_dynamic_cache([(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))])
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(Length(), (cache,)), buffer)
    buffer.seek(0)
    return buffer


def test_a_program_with_a_cache_loads_without_unrestricted_pickles(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: Any, weights_only: bool, **kwargs: Any) -> Any:
        assert weights_only
        return original(*args, weights_only=weights_only, **kwargs)

    original = torch.load
    with torch_export_patches():
        saved = saved_program()
        monkeypatch.setattr(torch, "load", load)
        program = torch.export.load(saved)
    assert isinstance(program.example_inputs[0][0], DynamicCache)


def test_the_list_of_safe_globals_is_as_before() -> None:
    before = set(torch.serialization.get_safe_globals())
    with torch_export_patches():
        assert DynamicCache in torch.serialization.get_safe_globals()
    assert set(torch.serialization.get_safe_globals()) == before
