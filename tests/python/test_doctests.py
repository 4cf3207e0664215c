"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import exportguard

ROOT = Path(exportguard.__path__[0])
FILES = (path.relative_to(ROOT.parent).with_suffix("") for path in ROOT.rglob("*.py"))
MODULES = sorted(".".join(file.parts).removesuffix(".__init__") for file in FILES if file.name != "__main__")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
