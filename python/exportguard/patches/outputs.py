"""Outputs of models, dictionaries that are dataclasses: they get the keys that torch.export asks of its inputs.

transformers and diffusers register these classes themselves. What some versions leave out are the keys, without which
one of them cannot be an input: the output of an encoder that is given to a decoder, for instance.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch.utils._pytree as pytree

from exportguard.declaration.imports import module_of
from exportguard.declaration.modules import classes_of, for_later_modules, with_subclasses
from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed
from exportguard.declaration.targets import resolve_object
from exportguard.inputs import flattened_with_keys

if TYPE_CHECKING:
    from exportguard._core import Changes


def _has_no_keys(cls: type[Any]) -> bool:
    node = pytree.SUPPORTED_NODES.get(cls)
    return node is not None and node.flatten_with_keys_fn is None


def _add_keys(changes: Changes, classes: Iterable[type[Any]]) -> None:
    for cls in filter(_has_no_keys, classes):
        node = pytree.SUPPORTED_NODES[cls]
        with_keys = functools.partial(flattened_with_keys, node.flatten_fn)
        changes.set_item(pytree.SUPPORTED_NODES, cls, node._replace(flatten_with_keys_fn=with_keys))


def _outputs_patch(path: str, kind: str, upstream: str) -> Patch:
    package = path.partition(".")[0]

    def probe() -> Verdict:
        known = [cls for cls in with_subclasses(resolve_object(path)) if cls in pytree.SUPPORTED_NODES]
        has_keys = bool(known) and not any(map(_has_no_keys, known))
        return not_needed(f"{package} registers its outputs with keys") if has_keys else NEEDED

    def later(changes: Changes, module: types.ModuleType) -> None:
        base = resolve_object(path)
        _add_keys(changes, (cls for cls in classes_of(module) if issubclass(cls, base)))

    def apply(changes: Changes) -> None:
        _add_keys(changes, with_subclasses(resolve_object(path)))
        for_later_modules(changes, package, later)

    return Patch(
        name=f"outputs of {package}",
        kind=kind,
        target=path,
        awaits=module_of(path),
        reason="an output of one model that is the input of another has no key paths, which torch.export asks for",
        upstream=upstream,
        probe=probe,
        apply=apply,
    )


PATCHES = (
    _outputs_patch(
        "transformers.utils.generic.ModelOutput",
        "serializer",
        "https://github.com/huggingface/transformers/pull/26618",
    ),
    _outputs_patch(
        "diffusers.utils.outputs.BaseOutput",
        "diffusers",
        "https://github.com/huggingface/diffusers/blob/main/src/diffusers/utils/outputs.py",
    ),
)
