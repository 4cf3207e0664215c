"""Trees gone through and changed as `ast` does it."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import types

import pytest

from exportguard.source.reading import copied, is_same_tree
from exportguard.source.walking import MARKS, Transformer, located, parts_of, walked

STATEMENTS = """
def f(a, /, b=1, *c, d: int = 2, e=None, **g) -> None:
    global h
    match a:
        case {"x": [1, *rest], **others} if not rest: pass
        case None | -1 as b: return
    with open(a) as b, b: del a[1:2, ...]
    try: {**a, 1: 2}
    except* E as e: raise e from None
    else: pass
    return [x async for x in y if x if not y], lambda *a: (yield), f"{a!r:{b}}", a < b <= c
class A(B, metaclass=C):
    from . import a as b
    x: int
    async def m(self): await self.n(*a, **b)
"""
MODULES = (argparse, ast, dataclasses, inspect)


@pytest.fixture(params=[None, *MODULES], ids=lambda module: getattr(module, "__name__", "statements"))
def tree(request: pytest.FixtureRequest) -> ast.Module:
    module: types.ModuleType | None = request.param
    return ast.parse(STATEMENTS if module is None else inspect.getsource(module))


def test_it_goes_through_the_nodes_that_ast_does_but_for_marks(tree: ast.Module) -> None:
    assert walked(tree) == [node for node in ast.walk(tree) if type(node) not in MARKS]
    for node in ast.walk(tree):
        assert parts_of(node) == [part for part in ast.iter_child_nodes(node) if type(part) not in MARKS]


def test_a_place_is_that_of_the_node_around(tree: ast.Module) -> None:
    for number, node in enumerate(walked(tree)):
        if number % 3 == 0:
            for name in ("lineno", "end_lineno", "end_col_offset", "col_offset")[number % 2 :]:
                vars(node).pop(name, None)
    other = copied(tree)
    assert ast.dump(located(tree), include_attributes=True) == ast.dump(
        ast.fix_missing_locations(other), include_attributes=True
    )


class _Rule:
    """Doubles returns, drops `pass` and values of arguments, renames names, and takes calls for their functions."""

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        self.generic_visit(node)  # type: ignore[attr-defined]
        return [node, node]

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(f"{node.id}_", node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)  # type: ignore[attr-defined]
        return node.func

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Constant(repr(node.value))


class _ByAst(_Rule, ast.NodeTransformer):
    pass


class _ByUs(_Rule, Transformer):
    pass


class _Namesake(Transformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name("same", node.ctx)


def test_a_rule_makes_what_it_makes_with_ast(tree: ast.Module) -> None:
    assert ast.dump(_ByUs().visit(copied(tree))) == ast.dump(_ByAst().visit(copied(tree)))
    assert is_same_tree(Transformer().visit(copied(tree)), tree)


def test_each_rule_has_methods_of_its_own() -> None:
    name = ast.parse("a", mode="eval").body
    assert [ast.unparse(rule().visit(name)) for rule in (_ByUs, _Namesake, _ByUs, Transformer)] == [
        "a_",
        "same",
        "a_",
        "a",
    ]


def test_a_copy_shares_nothing_that_has_parts_or_a_place(tree: ast.Module) -> None:
    shared = {id(node) for node in walked(tree)} & {id(node) for node in walked(copied(tree))}
    assert not shared
