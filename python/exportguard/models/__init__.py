"""Models to validate: small untrained ones by architecture name, or those of a folder or a hub id."""

from .catalogue import DTYPES, BuildOptions, ModelCase, build_model, model_names, models_of_task, tasks_of
from .tables import Architecture, Task, architectures, tasks

__all__ = [
    "DTYPES",
    "Architecture",
    "BuildOptions",
    "ModelCase",
    "Task",
    "architectures",
    "build_model",
    "model_names",
    "models_of_task",
    "tasks",
    "tasks_of",
]
