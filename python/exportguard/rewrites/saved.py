"""Rewritten functions as a Python file: written once, reviewed, and loaded instead of being found again."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from exportguard.declaration.patch import Patch
from exportguard.declaration.targets import TargetMissingError
from exportguard.errors import FileError, GuardError, InvalidArgumentError
from exportguard.rewrites.engine import RUNTIME_NAME, RewrittenMethod, compile_function, is_rewritten
from exportguard.rewrites.in_place import InPlaceRewrite, in_place
from exportguard.rewrites.places import functions_at
from exportguard.source.editing import keep_sources
from exportguard.source.reading import definition_of, text_of

_HEAD = '''\
"""Functions that torch.export cannot trace, rewritten by exportguard; `...` stands for a default of the original.

Made with {versions}. Pass the path of this file in `custom_patches` of `exportguard.torch_export_patches`.
"""

from exportguard.rewrites import runtime as {runtime}
from exportguard.rewrites.saved import replaces
'''


@dataclass(frozen=True, kw_only=True)
class SavedRewrite:
    """A function of a saved file, and what it was made for."""

    target: str
    source: str  # the digest of the original's source
    made_with: str
    function: types.FunctionType

    @property
    def file(self) -> str:
        return self.function.__code__.co_filename

    def misfit(self) -> str | None:
        """Why the installed source is not what it was made for, if so."""
        try:
            functions = functions_at(self.target)
        except TargetMissingError as error:
            return str(error)
        if not functions:
            return f"there is no {self.target}"
        if not is_rewritten(functions[0].__code__) and _digest(functions[0]) != self.source:
            return f"{self.target} has changed since {self.made_with} ({_version_of(self.target)} is here)"
        return None

    def patch(self) -> InPlaceRewrite:
        """The patch that puts it in force; it must fit."""
        functions = functions_at(self.target)
        node = definition_of(self.function)
        node.decorator_list = []
        before = definition_of(functions[0])
        before.decorator_list = []
        made = compile_function(node, functions[0], self.file)
        keep_sources(made, before, node)
        rewritten = RewrittenMethod(original=functions[0], func=made, applied=(f"as in {self.file}",))
        return in_place(functions, rewritten, f"{Path(self.file).name} for {self.target}")


def replaces(target: str, *, source: str, made_with: str) -> Callable[[types.FunctionType], SavedRewrite]:
    """Marks a function of a saved file as the rewritten one of `target`."""
    return lambda function: SavedRewrite(target=target, source=source, made_with=made_with, function=function)


def save_rewritten(patches: Sequence[Patch], path: str | os.PathLike[str]) -> None:
    """Writes rewritten functions as a Python file that `custom_patches` takes: the same bytes for the same functions.

    :param patches: what an automatic rewriting found: `RewrittenExport.rewritten` or `OnnxModel.rewritten`
    :raises InvalidArgumentError: a function cannot be found again by its name
    :raises FileError: the file cannot be written
    """
    rewritten = [patch for patch in patches if isinstance(patch, InPlaceRewrite)]
    packages = sorted({_version_of(patch.targets[0]) for patch in rewritten} | {_version("torch")})
    head = _HEAD.format(versions=", ".join(packages), runtime=RUNTIME_NAME)
    text = "\n\n".join([head, *(_definition(patch) for patch in rewritten)])
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(f"{os.fspath(path)} cannot be written: {error.strerror}") from error


def _definition(patch: InPlaceRewrite) -> str:
    target = patch.targets[0]
    if not _is_found(target, patch.functions):
        raise InvalidArgumentError(
            f"{target} cannot be found by its name, so that a file could not put it in force; define it in a module"
        )
    node = ast.parse(patch.rewritten.source).body[0]
    assert isinstance(node, ast.FunctionDef)
    node.name = re.sub(r"\W+", "_", ".".join(target.replace(".<locals>", "").split(".")[-2:]))
    _strip_signature(node)
    digest = _digest(patch.functions[0])
    made_with = _version_of(target)
    return (
        f'@replaces(\n    "{target}",\n    source="{digest}",\n    made_with="{made_with}",\n)\n{ast.unparse(node)}\n'
    )


def _is_found(target: str, functions: Sequence[types.FunctionType]) -> bool:
    try:
        return functions[0] in functions_at(target)
    except TargetMissingError:
        return False


def _strip_signature(node: ast.FunctionDef) -> None:
    """No annotations, and `...` for defaults: their expressions belong to the original's module."""
    arguments = node.args
    node.returns = None
    optional = [arguments.vararg, arguments.kwarg]
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *filter(None, optional)]:
        argument.annotation = None
    arguments.defaults = [ast.Constant(...) for _ in arguments.defaults]
    arguments.kw_defaults = [ast.Constant(...) if default else None for default in arguments.kw_defaults]


def _digest(function: types.FunctionType) -> str:
    lines = (line.rstrip() for line in text_of(function).strip().splitlines())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _version_of(target: str) -> str:
    return _version(target.split(".")[0])


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} without a version"


# ---------------------------------------------------------------------------------------------------- loading


def load_rewritten(path: str | os.PathLike[str]) -> list[Patch]:
    """The patches of a file that `save_rewritten` wrote.

    :raises FileError: there is no such file, or it defines none
    :raises GuardError: the source that it was made for has changed
    """
    file = Path(path)
    if not file.is_file():
        raise FileError(f"there is no file {file}; custom_patches takes the path of a file that was saved, or patches")
    spec = importlib.util.spec_from_file_location(f"exportguard_saved_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    saved = saved_in(module)
    if not saved:
        raise FileError(f"{file} defines no rewritten function; save one with RewrittenExport.save")
    return patches_of(saved)


def saved_in(module: types.ModuleType) -> list[SavedRewrite]:
    """What a loaded file defines."""
    return [value for value in vars(module).values() if isinstance(value, SavedRewrite)]


def patches_of(saved: Sequence[SavedRewrite]) -> list[Patch]:
    """The patches of saved functions, all of which must fit.

    :raises GuardError: with all that do not
    """
    misfits = list(filter(None, (rewrite.misfit() for rewrite in saved)))
    if misfits:
        raise GuardError(
            f"{saved[0].file} does not fit what is installed: {'; '.join(misfits)}; "
            'export with rewrite="auto" and save it again'
        )
    return [rewrite.patch() for rewrite in saved]
