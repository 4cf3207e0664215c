"""What a patch takes for granted of the functions that it changes or builds on: their parameters and what they do.

It is looked up in their syntax trees. To read and match these takes longer than all the rest of a guard, so what was
found in the versions that `data/known_functions.json` names is known by a digest of the function's code;
`python tools/known_functions.py` writes it for those that are installed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from exportguard.declaration.patch import NEEDED, Verdict, does_not_fit
from exportguard.declaration.targets import resolve
from exportguard.source.reading import definition_of
from exportguard.source.templates import Template

KNOWN = Path(__file__).parent / "data" / "known_functions.json"

_FURTHER = ", ..."  # at the end of parameters: there may be more


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is taken for granted of one function; a decorated one is looked into.

    :param path: its dotted path
    :param parameters: their names, "self, func, args"; with "..." at the end there may be more; left out: any
    :param has: templates of `exportguard.source.templates`, each of which is somewhere in the function
    :param variable, uses: all that it does with one of its variables: templates of the outermost tests of it, and of
        what names it elsewhere
    """

    path: str
    parameters: str = ""
    has: tuple[str, ...] = ()
    variable: str = ""
    uses: tuple[str, ...] = ()

    def missing(self) -> str:
        """What the installed function does not have, in words; empty if it is as expected.

        :raises TargetMissingError: there is no such function
        :raises RewriteError: it has no source
        """
        function = self.function()
        return "" if self.digest(function) in known_digests() else self.missing_in(function)

    def function(self) -> types.FunctionType:
        """The installed function, without its decorators."""
        return cast(types.FunctionType, inspect.unwrap(resolve(self.path).function))

    def missing_in(self, function: types.FunctionType) -> str:
        """What its syntax tree does not have."""
        names = ", ".join(inspect.signature(function).parameters)
        wanted = self.parameters.removesuffix(_FURTHER)
        is_same = names == wanted or (wanted != self.parameters and names.startswith(f"{wanted},"))
        if self.parameters and not is_same:
            return f"the parameters {self.parameters}, but {names}"
        tree = definition_of(function)
        absent = next((text for text in self.has if not Template(text).within(tree)), "")
        return absent or self._other_use(tree)

    def _other_use(self, tree: ast.FunctionDef) -> str:
        known = [Template(text) for text in self.uses]
        found = [*_uses_of(self.variable, tree.body)] if self.variable else []
        others = [use for use in found if not any(template.match(use) for template in known)]
        if others:
            return f"only the known uses of {self.variable}, but {ast.unparse(others[0])}"
        absent = (text for text, template in zip(self.uses, known, strict=True) if not any(map(template.match, found)))
        return next(absent, "")

    def digest(self, function: types.FunctionType) -> str:
        """What tells this function, and what is expected of it, from every other."""
        text = repr((*vars(self).values(), _described(function.__code__)))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _uses_of(name: str, nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The outermost tests of a variable, and where it is named outside of what they decide."""
    for node in nodes:
        if isinstance(node, ast.If) and any(_uses_of(name, [node.test])):
            yield node.test
            yield from _uses_of(name, node.orelse)
        elif isinstance(node, ast.Name) and node.id == name:
            yield node
        else:
            yield from _uses_of(name, ast.iter_child_nodes(node))


@dataclass(frozen=True)
class Expecting:
    """A probe: the patch is needed if the functions are as expected, else the verdict is `otherwise`.

    :param otherwise: left out: the patch does not fit, with what is missing
    :param then: a further probe behind it
    """

    expected: tuple[Expected, ...]
    otherwise: Verdict | None = None
    then: Callable[[], Verdict] | None = None

    def __call__(self) -> Verdict:
        for expected in self.expected:
            missing = expected.missing()
            if missing:
                return self.otherwise or does_not_fit(f"{expected.path} does not have {missing}")
        return self.then() if self.then is not None else NEEDED


def expecting(*expected: Expected, otherwise: Verdict | None = None) -> Expecting:
    """The probe that finds a patch needed if the functions are as expected.

    >>> expecting(Expected(path="ast.parse", parameters="source, ...", has=("compile(source, ...)",)))().fit
    'needed'
    """
    return Expecting(expected, otherwise)


@functools.cache
def known_digests() -> frozenset[str]:
    """Those of the functions in which, in the versions of the file, everything was found."""
    versions = json.loads(KNOWN.read_text("utf-8"))
    return frozenset(digest for functions in versions.values() for digest in functions.values())


def _described(code: types.CodeType) -> tuple[object, ...]:
    """All that the code does: where it stands, and what it is called there, left out."""
    return (
        code.co_code,
        code.co_exceptiontable,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_flags,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        tuple(_constants(code.co_consts)),
    )


def _constants(values: tuple[object, ...]) -> Iterator[object]:
    for value in values:
        if isinstance(value, types.CodeType):
            yield _described(value)
        elif isinstance(value, frozenset):  # in another order in each process
            yield sorted(map(repr, value))
        else:
            yield value
