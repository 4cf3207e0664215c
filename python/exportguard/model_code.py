"""What is the user's code, and what only runs it: one answer wherever a line of the model is named."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import sysconfig
import types
import weakref

from .containers import file_of_module, names_of_module

#: Code without a file of its own. Cells of a notebook have names in angle brackets as well, and are somebody's code.
_GENERATED = ("<string>", "<frozen ", "<eval_with_key>", "<lambdifygenerated", "<__array_function__")
#: Folders of torch that hold models' arithmetic, with tests on data, and not what runs it.
_MODELS_IN_TORCH = ("distributions",)
_RUNNING_MODELS = ("torch", "sympy", "numpy", "exportguard")


@functools.cache
def is_users(file: str) -> bool:
    """Whether a file of code is the user's, or a model library's: not of torch, sympy, numpy, this package or Python.

    >>> import ast
    >>> is_users("model.py"), is_users("<ipython-input-1>"), is_users(ast.__file__), is_users("<frozen runpy>")
    (True, True, False, False)
    """
    if file.startswith((*_GENERATED, *_packages())):
        return False
    return not file.startswith(_standard_library()) or file.startswith(_installed())


def is_installed(file: str) -> bool:
    """Whether a file of code lies where packages are installed."""
    return file.startswith(_installed())


@functools.cache
def is_models(file: str) -> bool:
    """Whether a file of code is that of a model: the user's, or torch's own arithmetic that has tests on its data.

    >>> import torch
    >>> is_models(torch.distributions.normal.__file__), is_users(torch.distributions.normal.__file__)
    (True, False)
    """
    return is_users(file) or file.startswith(_models_in_torch())


#: What was found out of classes, which may come and go.
_CLASSES: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def users_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """The first frame of the user's code on the way out from this one."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def is_users_class(cls: type) -> bool:
    """Whether a class is the user's: its module is, or all of its functions; one, if there is no such module."""
    known = _CLASSES.get(cls)
    if known is None:
        known = _CLASSES[cls] = _has_users_code(cls)
    return known


def is_users_module(module: types.ModuleType) -> bool:
    """Whether a module is the user's code; one without a file is, unless Python has it built in."""
    file = file_of_module(module)
    if file is not None:
        return is_users(file)
    return names_of_module(module).get("__name__") not in sys.builtin_module_names


def _has_users_code(cls: type) -> bool:
    module = sys.modules.get(cls.__module__)
    if module is not None and is_users_module(module):
        return True
    functions = [inspect.unwrap(value) for value in vars(cls).values() if isinstance(value, types.FunctionType)]
    users = [
        is_users(code.co_filename)
        for function in functions
        if (code := getattr(function, "__code__", None)) is not None
    ]

    # Whoever puts a function of their own into a class of torch does not own it.
    return not users or any(users) if module is None else bool(users) and all(users)


@functools.cache
def _models_in_torch() -> tuple[str, ...]:
    torch = importlib.import_module("torch").__file__ or ""
    return tuple(os.path.join(os.path.dirname(torch), name, "") for name in _MODELS_IN_TORCH)


@functools.cache
def _packages() -> tuple[str, ...]:
    files = (importlib.import_module(name).__file__ for name in _RUNNING_MODELS)
    return tuple(os.path.join(os.path.dirname(file), "") for file in files if file)


@functools.cache
def _standard_library() -> tuple[str, ...]:
    return tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))


@functools.cache
def _installed() -> tuple[str, ...]:
    """Where packages are installed, which may lie within Python's own folder."""
    names = ("purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names} | {
        folder for folder in sys.path if folder.endswith("-packages")
    }
    return tuple(os.path.join(folder, "") for folder in sorted(folders))
