"""Functions read, edited and compiled again: alike for patches and for rewrites."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shapes import program

from exportguard.rewrites.transform import transform_method
from exportguard.source.compiling import compiled
from exportguard.source.editing import rewrite, sources_of
from exportguard.source.errors import RewriteError
from exportguard.source.reading import definition_of
from exportguard.source.wrapping import innermost, rewrap

PROGRAMS = int(os.environ.get("EXPORTGUARD_TEST_SHAPES", "150"))


class AddsOne(ast.NodeTransformer):
    """`return x` becomes `return x + 1`, in the function itself."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        last = node.body[-1]
        assert isinstance(last, ast.Return)
        assert last.value is not None
        last.value = ast.BinOp(last.value, ast.Add(), ast.Constant(1))
        return ast.fix_missing_locations(node)


def by_patch(function: Any) -> Any:
    return rewrite(AddsOne)(function)


def by_rewriting(function: Any) -> Any:
    return transform_method(function, filter_node=lambda node: False, pre_rewriter=AddsOne().visit).func


ENGINES = pytest.mark.parametrize("engine", [by_patch, by_rewriting], ids=["patch", "rewrite"])


def loaded(source: str, path: Path) -> types.ModuleType:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled_again(raw: Any) -> Any:
    inner = innermost(raw)
    return rewrap(raw, inner, compiled(definition_of(inner), inner, keeps_free=True))


def outcome(run: Callable[[Any], Any], function: Any) -> Any:
    try:
        return run(function)
    except Exception as error:
        return type(error), str(error)


def test_what_is_compiled_unchanged_behaves_as_the_original(tmp_path: Path) -> None:
    for seed in range(PROGRAMS):
        module = loaded(program(seed), tmp_path / f"shape_{seed}.py")
        raw = module.subject()
        made = compiled_again(raw)
        defaults = list(module.LATER)
        assert type(made) is type(raw)
        assert outcome(module.run, made) == outcome(module.run, raw), program(seed)
        assert defaults == module.LATER, "defaults are evaluated once"
        inner, again = innermost(raw), innermost(made)
        assert again.__code__.co_freevars == inner.__code__.co_freevars
        assert again.__code__.co_qualname == inner.__code__.co_qualname
        assert again.__code__.co_firstlineno == definition_of(inner).lineno
        assert again.__globals__ is inner.__globals__
        assert again.__doc__ == inner.__doc__


@ENGINES
def test_one_more_is_one_more_in_every_shape(engine: Callable[[Any], Any], tmp_path: Path) -> None:
    for seed in range(PROGRAMS // 3):
        module = loaded(program(seed), tmp_path / f"shape_{seed}.py")
        raw = module.subject()
        before, after = outcome(module.run, raw), outcome(module.run, engine(raw))
        if isinstance(before, tuple):
            assert after == before, program(seed)
        else:
            assert after == before + factor_of(raw), program(seed)


def factor_of(raw: Any) -> int:
    """What the decorators make of one more; a function that calls itself calls the original."""
    function = raw.fget if isinstance(raw, property) else getattr(raw, "func", getattr(raw, "__func__", raw))
    factor = 1
    while hasattr(function, "__wrapped__"):
        factor *= 2 if "doubled" in function.__code__.co_qualname else 1
        function = function.__wrapped__
    return factor


def adds_ten(function: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> int:
        return function(*args) + 10

    return wrapper


class Private:
    __hidden = 5

    def method(self, **__options: int) -> int:
        class __Local:
            __hidden = 30

            def get(self) -> int:
                return self.__hidden

        return self.__hidden + len(__options) + __Local().get()

    @classmethod
    @adds_ten
    def decorated(cls) -> int:
        return cls.__hidden


def with_empty_cell() -> tuple[Callable[[], int], Callable[[], None]]:
    def function() -> int:
        return later

    def fill() -> None:
        nonlocal later
        later = 3

    if function is None:
        later = 0
    return function, fill


def local_class(amount: int) -> type:
    class Local:
        def method(self) -> int:
            return amount + len(type(self).__name__)

        def named(self) -> str:
            return str(super().__repr__() and __class__.__name__)  # type: ignore[name-defined]

    return Local


@ENGINES
def test_private_names_are_those_of_the_class(engine: Callable[[Any], Any]) -> None:
    assert engine(Private.method)(Private(), a=1) == 5 + 1 + 30 + 1


@ENGINES
def test_an_empty_cell_may_be_filled_later(engine: Callable[[Any], Any]) -> None:
    function, fill = with_empty_cell()
    rewritten = engine(function)
    with pytest.raises(NameError):
        rewritten()
    fill()
    assert rewritten() == 4


@ENGINES
def test_a_decorated_method_is_rewritten_inside_its_decorators(engine: Callable[[Any], Any]) -> None:
    raw = vars(Private)["decorated"]
    rewritten = engine(raw)
    assert isinstance(rewritten, classmethod)
    assert rewritten.__get__(None, Private)() == 5 + 1 + 10
    assert Private.decorated() == 15


@ENGINES
def test_a_class_in_a_function_keeps_what_surrounds_it(engine: Callable[[Any], Any]) -> None:
    cls = local_class(100)
    assert engine(vars(cls)["method"])(cls()) == 106


def test_super_and_class_work_in_a_copy() -> None:
    cls = local_class(1)
    assert compiled_again(vars(cls)["named"])(cls()) == "Local"


@ENGINES
def test_a_traceback_shows_the_line_of_the_file(engine: Callable[[Any], Any]) -> None:
    def fails() -> int:
        value = [1][2]
        return value

    with pytest.raises(IndexError) as raised:
        engine(fails)()
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (frame.filename, frame.line) == (__file__, "value = [1][2]")


async def coroutine() -> int:
    return 1


@ENGINES
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (coroutine, "test_engine.coroutine is a coroutine"),
        (len, "is not a Python function"),
        (eval("lambda x: x"), "has no source"),
        (lambda x: x, "is not defined by `def`"),
    ],
    ids=["async", "built in", "no file", "lambda"],
)
def test_what_cannot_be_read_is_refused(engine: Callable[[Any], Any], function: Any, text: str) -> None:
    with pytest.raises(RewriteError, match=text):
        engine(function)


def test_a_file_that_changed_since_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    module = loaded("def f(x):\n    return x\n", path)
    path.write_text("def g(x, y):\n    return x - y\n")
    with pytest.raises(RewriteError, match=r"changing\.f is not what stands in .*changing\.py, line 1"):
        definition_of(module.f)


class Uses(ast.NodeTransformer):
    """`x` becomes `helper(x)`."""

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return ast.fix_missing_locations(ast.Return(ast.Call(ast.Name("helper", ast.Load()), [node.value], [])))


def helper(x: int) -> int:
    return -x


def own_helper(x: int) -> int:
    return helper(x)


class Writer:
    def text(self) -> str:
        return """One,
    two"""

    def never(self) -> object:
        return iter(())
        yield


def test_a_string_of_several_lines_stays_as_it_is() -> None:
    made = compiled(definition_of(Writer.text), Writer.text)
    assert made(Writer()) == "One,\n    two"


def test_what_python_makes_no_code_of_is_read_too() -> None:
    body = definition_of(Writer.never).body
    assert [type(statement) for statement in body] == [ast.Return, ast.Expr]


def test_an_added_name_that_the_function_has_already_is_refused() -> None:
    with pytest.raises(RewriteError, match="own_helper has a variable helper of its own"):
        rewrite(Uses, helper=abs)(own_helper)


def test_a_second_rule_may_use_the_names_of_the_first() -> None:
    def function(x: int) -> int:
        return x

    twice = rewrite(Uses, helper=abs)(rewrite(Uses, helper=abs)(function))
    assert twice(-3) == 3
    assert sources_of(twice) == (
        "def function(x: int) -> int:\n    return x",
        "def function(x: int) -> int:\n    return helper(helper(x))",
    )


def test_what_wraps_a_rewritten_function_is_not_taken_for_it() -> None:
    rewritten = by_patch(own_helper)

    @functools.wraps(rewritten)
    def around(x: int) -> int:
        return rewritten(x)

    del around.__wrapped__  # type: ignore[attr-defined]
    assert sources_of(around) is None
    assert definition_of(around).body[-1].lineno == around.__code__.co_firstlineno + 2
