"""`PatchDetails` after the export of a model names every function that the guard replaced, and no other."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch

from exportguard import PatchDetails, torch_export_patches
from exportguard.declaration import resolve
from exportguard.models import BuildOptions, build_model
from exportguard.source.wrapping import plain

FUNCTIONS = (types.FunctionType, staticmethod, classmethod)
MODELS = ("llava_next", "mamba", "whisper")


def held() -> dict[str, tuple[Any, Any]]:
    """Each function of torch and transformers with the code that it runs, by the path under which it is found."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in ("torch", "transformers") or not isinstance(module, types.ModuleType):
            continue
        own = [value for value in vars(module).values() if getattr(value, "__module__", None) == name]
        for owner in (module, *(value for value in own if isinstance(value, type))):
            path = name if owner is module else f"{name}.{owner.__qualname__}"
            for key, value in list(vars(owner).items()):
                function = plain(value) if isinstance(value, FUNCTIONS) else None
                if isinstance(function, types.FunctionType):
                    found[f"{path}.{key}"] = value, function.__code__
    return found


@pytest.mark.parametrize("name", MODELS)
def test_every_function_that_is_replaced_is_named(name: str) -> None:
    case = build_model(name, BuildOptions())
    details = PatchDetails()
    with torch_export_patches(patch_details=PatchDetails()):  # imports what has a patch
        pass
    before = held()
    with torch_export_patches(patch_details=details) as prepare, torch.no_grad():
        torch.export.export(case.model, (), prepare(case.inputs(case.task.sizes)), strict=False)
        during = held()
        told = {function.target for function in details.patched}
        known = {id(resolve(target).raw) for target in told}  # under whatever names
    after = held()

    replaced = {path for path in before.keys() & during.keys() if during[path] != before[path]}
    # Torch wraps some functions of its own when they are first called, and leaves them so.
    replaced = {path for path in replaced if path.startswith("transformers.") or after[path] == before[path]}
    assert {path for path in replaced if after[path] != before[path]} == set()
    assert {path for path in replaced - told if id(during[path][0]) not in known} == set()
    assert {target.partition(".")[0] for target in told} >= {"torch", "transformers"}


def test_each_function_that_is_named_is_another_than_before() -> None:
    details = PatchDetails()
    with torch_export_patches(patch_details=details):
        pass
    same = [one.target for one in details.patched if one.function_to_patch is one.patch and one.diff() == ""]
    assert same == []
