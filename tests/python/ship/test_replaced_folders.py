"""Exports in the place of earlier ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from exportguard.errors import FileError
from exportguard.ship import FolderOptions, export_model


def test_an_earlier_export_that_was_not_compared_is_replaced_alone(tmp_path: Path) -> None:
    target, options = tmp_path / "out", FolderOptions(verify=False)
    told = export_model("llama", target, options).sha256
    assert {*told.values()} == {None}
    export_model("llama", target, options)
    (target / "mine.txt").write_text("kept", encoding="utf-8")
    with pytest.raises(FileError, match=r"other files \(mine\.txt\)"):
        export_model("llama", target, options)
