"""List the models that can be validated without a download, each with its tasks."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from ..command_line import argument
from ..errors import ExportGuardError
from ..models import architectures, model_names, tasks_of


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `exportguard models`."""

    pattern: str = argument(help="A part of the names to list.", default="")


def run(options: Options) -> int:
    """Prints the names; an error if none fits."""
    names = [name for name in model_names() if options.pattern in name]
    if not names:
        raise ExportGuardError(f"no model has '{options.pattern}' in its name; `exportguard models` lists all")
    table = Table("model", "tasks", box=None)
    for name in names:
        shipped = architectures().get(name)
        table.add_row(name, ", ".join(tasks_of(shipped.model_type if shipped else name)) or "-")
    Console().print(table)
    return 0
