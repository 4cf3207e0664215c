"""Which modules of a model become local functions of the ONNX model, and how these are called."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram

from .errors import InvalidArgumentError
from .repeats.markers import expand

#: Classes of modules, or their full names; "repeated": what a model repeats, a list of layers for example.
ModulesAsFunctions: TypeAlias = Sequence[type[torch.nn.Module] | str] | type[torch.nn.Module] | str

#: Domain and name of a function.
FunctionName: TypeAlias = tuple[str, str]

REPEATED = "repeated"


def functions_of_program(program: ExportedProgram, wanted: ModulesAsFunctions) -> dict[str, FunctionName]:
    """The modules of a program that are to be functions, by path, each with the domain and name of its function.

    The domain is the Python module of the class, the name that of the class. Of "repeated" modules those are taken
    that lie in no other repeated one. Blocks that were not traced are put into the program.

    Raises:
        InvalidArgumentError: `wanted` is neither classes nor "repeated", or the program has no module of a class.
    """
    expand(program.graph_module)
    classes = _classes_by_path(program)
    functions: dict[str, str] = {}
    for name_wanted in as_wanted(wanted):
        of_class = {path: name for path, name in classes.items() if name == name_wanted}
        found = _repeated(classes) if name_wanted == REPEATED else of_class
        if not found and name_wanted != REPEATED:
            known = ", ".join(sorted(set(classes.values())))
            raise InvalidArgumentError(
                f"modules_as_functions names {name_wanted}, of which the program has no module; it has {known}"
            )
        functions.update(found)
    return {path: _function_name(name) for path, name in functions.items()}


def as_wanted(wanted: ModulesAsFunctions) -> list[str]:
    """Full names of classes, and "repeated".

    Raises:
        InvalidArgumentError: for anything else.
    """
    given: Iterable[Any] = [wanted] if isinstance(wanted, str | type) else wanted
    if not isinstance(given, Iterable):
        raise InvalidArgumentError(f'modules_as_functions must be classes of modules or "{REPEATED}", got {wanted!r}')
    return [_name_of(item) for item in given]


def _name_of(module: object) -> str:
    if isinstance(module, str) and (module == REPEATED or "." in module):
        return module
    if isinstance(module, type) and issubclass(module, torch.nn.Module):
        return f"{module.__module__}.{module.__qualname__}"
    raise InvalidArgumentError(
        f'modules_as_functions must be classes of modules, their full names, or "{REPEATED}", got {module!r}'
    )


def _classes_by_path(program: ExportedProgram) -> dict[str, str]:
    """The full name of the class of each module that the program went through, by the path of its first call.

    torch (2.11 to 2.13) keeps for every node the modules around it: {key: (path, class)}, outermost first.
    """
    nodes = (node for module in program.graph_module.modules() for node in _nodes_of(module))
    stacks: Iterable[Mapping[str, Any]] = (node.meta.get("nn_module_stack") or {} for node in nodes)
    entries = itertools.chain.from_iterable(stack.values() for stack in stacks)
    classes = {_clean(path): kind if isinstance(kind, str) else _name_of(kind) for path, kind in entries}
    classes.pop("", None)  # the model itself
    return classes


def _nodes_of(module: torch.nn.Module) -> Iterable[torch.fx.Node]:
    return module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ()


def _clean(path: str) -> str:
    """As sources have it: `layers.0`, also for `L['self'].layers[0]` and for the second call, `layers.0@1`."""
    path = re.sub(r"@\d+$", "", path)
    path = re.sub(r"^(L\['self'\]|L__self__|getattr_L__self__)", "", path)
    parts = re.split(r"[.\[\]'\"]+", path)
    return ".".join(part for part in parts if part and part != "_modules")


def _repeated(classes: Mapping[str, str]) -> dict[str, str]:
    """Modules that differ from another of their class in numbers of the path alone, and lie in no other such module."""
    alike: dict[tuple[str, str], list[str]] = {}
    for path, name in classes.items():
        alike.setdefault((re.sub(r"(?<![^.])\d+(?![^.])", "*", path), name), []).append(path)
    paths = {path for group in alike.values() if len(group) > 1 for path in group}
    return {path: classes[path] for path in sorted(paths) if not _parents(path) & paths}


def _parents(path: str) -> set[str]:
    parts = path.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def _function_name(class_name: str) -> FunctionName:
    """`a.b.Outer.<locals>.Block` is the function Block of the domain a.b.Outer."""
    domain, _, name = class_name.replace(".<locals>", "").rpartition(".")
    return domain, name
