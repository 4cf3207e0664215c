"""What patches take for granted of torch's functions: looked up in trees, or known by the digest of their code."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from exportguard.declaration.expected import KNOWN, Expected, Expecting, expecting, known_digests
from exportguard.declaration.patch import not_needed
from exportguard.declaration.targets import resolve
from exportguard.patches import all_patches
from exportguard.source.compiling import compiled
from exportguard.source.reading import definition_of

TOOL = Path(__file__).parents[2] / "tools" / "known_functions.py"


def expectations() -> Iterator[Expected]:
    for patch in all_patches():
        patch.load()
        if isinstance(patch.probe, Expecting):
            yield from patch.probe.expected


EXPECTED = tuple(dict.fromkeys(expectations()))


@pytest.fixture(scope="module")
def tool() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("known_functions", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: expected.path)
def test_the_installed_torch_has_it_in_its_trees(expected: Expected) -> None:
    assert expected.missing_in(expected.function()) == ""


def test_the_file_knows_what_is_installed_if_it_knows_its_version(tool: types.ModuleType) -> None:
    versions = json.loads(KNOWN.read_text("utf-8"))
    assert versions.get(tool.installed(), tool.digests()) == tool.digests()


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: expected.path)
def test_a_function_that_does_more_or_less_is_not_known(expected: Expected) -> None:
    function = expected.function()
    tree = definition_of(function)
    for at in range(len(tree.body)):
        changed = definition_of(function)
        changed.body[at] = ast.copy_location(ast.parse("print('another')").body[0], tree.body[at])
        made = compiled(ast.fix_missing_locations(changed), function, keeps_free=True)
        assert expected.digest(made) not in known_digests()


def asks(x: int, func: object) -> object:
    if func is print:
        return x
    return func


@pytest.mark.parametrize(
    ("expected", "missing"),
    [
        (Expected(path="", has=("return $y",), parameters="x, func"), ""),
        (Expected(path="", parameters="x, ..."), ""),
        (Expected(path="", parameters="x"), "the parameters x, but x, func"),
        (Expected(path="", parameters="x, y, ..."), "the parameters x, y, ..., but x, func"),
        (Expected(path="", has=("return x + 1",)), "return x + 1"),
        (Expected(path="", variable="func", uses=("func is print", "func")), ""),
        (Expected(path="", variable="func", uses=("func is print",)), "only the known uses of func, but func"),
        (Expected(path="", variable="func", uses=("func is print", "func", "func is id")), "func is id"),
    ],
)
def test_what_is_missing_is_said(expected: Expected, missing: str) -> None:
    assert expected.missing_in(asks) == missing


def test_another_expectation_of_a_known_function_is_read() -> None:
    known = EXPECTED[0]
    assert known.digest(known.function()) in known_digests() or known.missing() == ""
    other = Expected(path=known.path, has=("no_such_name",))
    assert other.missing() == "no_such_name"
    assert expecting(other)().reason == f"{known.path} does not have no_such_name"
    assert expecting(other, otherwise=not_needed("it asks nothing"))() == not_needed("it asks nothing")


def test_decorated_functions_are_looked_into() -> None:
    path = "torch.fx._symbolic_trace.Tracer.call_module"
    assert Expected(path=path).function() is inspect.unwrap(resolve(path).function)
