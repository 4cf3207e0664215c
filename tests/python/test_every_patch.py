"""Every declared patch has a program that is right with it and not right without it."""

from __future__ import annotations

import importlib.util

import pytest

from exportguard.patches import Patch, all_patches
from patch_programs import all_programs
from test_patches_transformers import COVERED_BY, NEEDS

PROGRAMS = all_programs()
#: Tested by whole models, in test_patches_transformers.py.
OF_MODELS = {name for names in NEEDS.values() for name in names}
PATCHES = {patch.name: patch for patch in all_patches()}


def test_every_patch_has_a_program() -> None:
    without = sorted(set(PATCHES) - set(PROGRAMS) - OF_MODELS)
    assert not without, f"no program shows that these patches are needed: {', '.join(without)}"


def test_every_program_is_of_a_patch() -> None:
    assert set(PROGRAMS) <= set(PATCHES)


@pytest.fixture(params=PROGRAMS)
def patch(request: pytest.FixtureRequest) -> Patch:
    patch = PATCHES[request.param]
    patch.load()
    fit, reason = patch.verdict()
    if fit != "needed":
        pytest.skip(f"{patch.name}: {fit} here, {reason}")
    return patch


def test_a_program_is_right_with_the_patch(patch: Patch) -> None:
    PROGRAMS[patch.name]()


@pytest.mark.thinned(3)
def test_a_program_is_not_right_without_it(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Patch.verdict
    left_out = {patch.name, COVERED_BY.get(patch.name)}
    monkeypatch.setattr(Patch, "verdict", lambda self: ("not needed", "-") if self.name in left_out else verdict(self))
    with pytest.raises((Exception, pytest.fail.Exception)):
        PROGRAMS[patch.name]()


@pytest.mark.parametrize("patch", all_patches(), ids=lambda patch: patch.name)
def test_every_patch_links_to_upstream(patch: Patch) -> None:
    assert patch.upstream.startswith("https://github.com/")
    assert patch.reason
    assert patch.kind != "torch" or patch.probe is not None, "a torch fix has a probe"


def test_every_serializer_says_which_module_it_waits_for() -> None:
    assert all(patch.awaits for patch in all_patches() if patch.kind == "serializer")
    assert importlib.util.find_spec("transformers") is not None
