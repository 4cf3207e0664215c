"""torch's own examples of what it exports and what not: all are right in onnxruntime."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import pytest

_PATH = Path(__file__).parents[3] / "benchmarks" / "exportdb.py"


def _benchmark() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_of_exportdb", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_EXPORTDB = _benchmark()


@pytest.mark.parametrize("name", [name for name, _ in _EXPORTDB.examples()])
def test_an_example_of_exportdb_is_right(name: str) -> None:
    outcome = _EXPORTDB.outcome(name, dict(_EXPORTDB.examples())[name])
    assert outcome.is_right, outcome.text
