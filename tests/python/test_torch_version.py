"""The package refuses a torch that it was not built against."""

from __future__ import annotations

import pytest

from exportguard.torch_version import require_same_torch


def test_another_patch_release_is_accepted() -> None:
    require_same_torch("2.13.1+cu128", "2.13.0")


def test_another_minor_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(ImportError) as caught:
        require_same_torch("2.12.0+cpu", "2.13.0")
    assert str(caught.value) == (
        "exportguard was built against torch 2.13.0, but torch 2.12.0+cpu is installed; "
        "install torch 2.13.*, or rebuild with `pip install --no-build-isolation .`"
    )
