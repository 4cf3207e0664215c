"""One class of options for the guard, in Python and in C++, and no option that switches nothing."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from exportguard import ExportOptions, InvalidArgumentError, PatchOptions, _core, to_onnx, torch_export_patches
from exportguard.patches import all_patches

HEADER = Path(__file__).parents[2] / "include" / "exportguard" / "guard" / "options.h"
#: What a guard does in Python alone.
PYTHON_ONLY = {"patch_details", "repeats", "verbose"}


def test_python_and_cpp_have_the_same_options_with_the_same_defaults() -> None:
    struct = HEADER.read_text(encoding="utf-8").split("struct PatchOptions {")[1].split("};")[0]
    declared = dict(
        re.findall(r"^\s+(?:bool|int|std::string|std::vector<[^>]*>) (\w+)(?: = (\w+))?;", struct, re.MULTILINE)
    )
    defaults = {one.name: one.default for one in fields(PatchOptions)}
    assert declared.keys() == defaults.keys()
    spelled = {"true": True, "false": False, "0": 0}
    for name, value in declared.items():
        assert defaults[name] == spelled[value] if value else not defaults[name]


def test_a_guard_takes_the_options_and_three_of_its_own() -> None:
    parameters = set(inspect.signature(torch_export_patches).parameters)
    assert parameters == {one.name for one in fields(PatchOptions)} | PYTHON_ONLY


def test_each_kind_of_patches_is_switched_by_an_option() -> None:
    options = {one.name for one in fields(PatchOptions)}
    assert {option for _, option in _core.patch_kinds() if option} <= options
    flags = {one.name for one in fields(PatchOptions) if one.type in ("bool", bool)} - {"patch"}
    assert flags == {option for _, option in _core.patch_kinds() if option} - {"stop_if_static"}


@pytest.mark.parametrize("kind", [(kind, option) for kind, option in _core.patch_kinds() if option], ids=str)
def test_no_option_switches_nothing(kind: tuple[str, str]) -> None:
    name, option = kind
    own = {patch.name for patch in all_patches() if patch.kind == name}
    assert own, f"no patch is of the kind that {option} switches"
    with torch_export_patches(**{option: not getattr(PatchOptions(), option)}) as other, torch_export_patches() as _:
        outcomes = {line.outcome for line in other.report if line.name in own}
    with torch_export_patches() as usual:
        assert outcomes != {line.outcome for line in usual.report if line.name in own}


def test_options_open_a_guard_themselves() -> None:
    options = PatchOptions(patch_torch=False, stop_if_static=1)
    with torch_export_patches.given(options) as guard:
        skipped = [line.reason for line in guard.report if line.kind == "torch"]
    assert set(skipped) == {"patch_torch=False"}


def test_a_guard_may_be_opened_again_and_decorates() -> None:
    guard = torch_export_patches(patch_transformers=False)
    for _ in range(2):
        with guard as opened:
            assert opened.is_open

    @torch_export_patches()
    def depth() -> int:
        return _core.guard_depth()

    assert depth() == 1
    assert _core.guard_depth() == 0


@pytest.mark.parametrize("guard", [PatchOptions(patch_torch=False), {"patch_torch": False}, torch_export_patches()])
def test_an_export_takes_options_arguments_or_a_guard(guard: Any) -> None:
    made = to_onnx(torch.nn.Linear(2, 1), (torch.zeros(3, 2),), options=ExportOptions(guard=guard))
    assert made.node_count >= 1


def test_an_unknown_argument_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidArgumentError, match=r"options\.guard has patches; torch_export_patches takes patch, "):
        ExportOptions(guard={"patches": True})
