"""The seconds of each phase."""

from __future__ import annotations

from pathlib import Path

import torch

from exportguard import to_onnx
from exportguard.phases import measured_by, phase, recorded_phases


def test_phases_of_one_name_are_added_up_and_those_of_an_inner_record_are_its_own() -> None:
    with recorded_phases() as outer:
        for _ in range(2):
            with phase("one"):
                pass
        with recorded_phases() as inner, phase("two"):
            pass
    with phase("nobody records"):
        pass
    assert list(outer) == ["one"]
    assert list(inner) == ["two"]
    assert all(seconds >= 0 for seconds in (*outer.values(), *inner.values()))


def test_another_clock_tells_the_seconds_of_a_block() -> None:
    ticks = iter(range(10))
    with recorded_phases() as seconds:
        with measured_by(lambda: float(next(ticks))), phase("one"), phase("two"):
            pass
        with phase("three"):
            pass
    assert (seconds["one"], seconds["two"]) == (3, 1)
    assert next(ticks) == 4
    assert seconds["three"] < 1


def test_model_tells_how_long_each_phase_took(tmp_path: Path) -> None:
    model = to_onnx(torch.nn.Linear(4, 2), (torch.zeros(3, 4),), dynamic_shapes=({0: "batch"},))
    model.save(tmp_path / "model.onnx")
    assert set(model.seconds) == {
        "reading the axes",
        "comparing with gradients",
        "opening the guard",
        "torch.export",
        "torch.export: tracing",
        "proving the sizes",
        "reading the program",
        "converting",
        "optimizing",
        "saving",
    }
    assert 0 < model.seconds["torch.export: tracing"] < model.seconds["torch.export"]
