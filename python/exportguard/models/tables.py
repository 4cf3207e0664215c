"""The data files that describe models and tasks, read once."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a model is used for: the class that builds it, its inputs, and the sizes they are traced with.

    Of the classes in `mapping` only those can do it that have `method`, if there is one.
    """

    name: str
    auto_class: str
    mapping: str
    inputs: str
    cached: bool
    sizes: Mapping[str, int]
    method: str = ""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A model shipped as data: a model type of transformers and what to change in its shrunk configuration."""

    name: str
    task: str
    model_type: str
    config: Mapping[str, Any] = field(default_factory=dict)


@functools.cache
def table(name: str) -> Any:
    """The content of `data/<name>.json`."""
    return json.loads(resources.files(__package__).joinpath("data", f"{name}.json").read_text(encoding="utf-8"))


@functools.cache
def tasks() -> dict[str, Task]:
    """Every task by name, the more particular ones first."""
    return {name: Task(name=name, **fields) for name, fields in table("tasks").items()}


@functools.cache
def exceptions() -> dict[str, dict[str, Any]]:
    """What the general rule of shrinking gets wrong, by model type: fields of the small configuration."""
    result: dict[str, dict[str, Any]] = table("exceptions")
    return result


@functools.cache
def architectures() -> dict[str, Architecture]:
    """Every architecture that is shipped as data, by the name the user writes."""
    return {
        name: Architecture(**{"name": name, "model_type": name, **fields})
        for name, fields in table("architectures").items()
    }
