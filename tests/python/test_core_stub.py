"""`_core.pyi` says of the C++ side what the C++ side says of itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from exportguard import _core

STUB = ast.parse((Path(_core.__file__).parent / "_core.pyi").read_text(encoding="utf-8"))


def declared(body: list[ast.stmt], prefix: str = "") -> dict[str, list[str] | None]:
    """Arguments by name of the function; None for a property or a class."""
    found: dict[str, list[str] | None] = {}
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            found[statement.name] = None
            found.update(declared(statement.body, f"{statement.name}."))
        elif isinstance(statement, ast.FunctionDef):
            is_property = any(
                "property" in ast.unparse(d) or "setter" in ast.unparse(d) for d in statement.decorator_list
            )
            arguments = [*statement.args.posonlyargs, *statement.args.args, *statement.args.kwonlyargs]
            names = [argument.arg for argument in arguments if argument.arg != "self"]
            found[prefix + statement.name] = None if is_property else names
        elif isinstance(statement, ast.AnnAssign):
            found[prefix + ast.unparse(statement.target)] = None
    return found


def defined(owner: Any, prefix: str = "") -> dict[str, list[str] | None]:
    """The same of what was compiled, read from the signatures that pybind11 writes into docstrings."""
    found: dict[str, list[str] | None] = {}
    for name, value in vars(owner).items():
        value = getattr(value, "__func__", value)
        if isinstance(value, type) and prefix == "":
            found[name] = None
            found.update(defined(value, f"{name}."))
        elif isinstance(value, property):
            found[prefix + name] = None
        elif callable(value) and (not name.startswith("_") or _is_constructor(name, value)):
            found[prefix + name] = arguments(value.__doc__ or "")
    return found


def _is_constructor(name: str, value: Any) -> bool:
    """Or what a `with` statement calls."""
    return name in ("__init__", "__enter__", "__exit__") and "->" in (value.__doc__ or "")


def arguments(doc: str) -> list[str]:
    """The names in the first line of a docstring of pybind11: `lower(model: Model, opset: int = 22) -> None`."""
    first = doc.splitlines()[0] if doc else ""
    inside = first.partition("(")[2].rpartition(") ->")[0] if ") ->" in first else first.partition("(")[2]
    flat = re.sub(r"[\[({][^\[\](){}]*[\])}]", "", re.sub(r"[\[({][^\[\](){}]*[\])}]", "", inside))
    names = [part.partition(":")[0].strip() for part in flat.split(",")]
    return [name for name in names if re.fullmatch(r"\w+", name) and name != "self"]


@pytest.mark.parametrize("what", ["missing from the stub", "missing from the module"])
def test_the_stub_has_the_names_of_the_module(what: str) -> None:
    stub, module = set(declared(STUB.body)), set(defined(_core))
    assert sorted(module - stub if what == "missing from the stub" else stub - module) == []


def test_the_arguments_have_the_same_names() -> None:
    stub, module = declared(STUB.body), defined(_core)
    differ = {
        name: (stub[name], module[name])
        for name in stub.keys() & module.keys()
        if stub[name] is not None and module[name] is not None and stub[name] != module[name]
    }
    assert differ == {}
