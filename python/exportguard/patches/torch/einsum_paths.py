"""The order in which `torch.einsum` takes three operands and more, which opt_einsum works out from numbers.

Where that package is installed, it asks every size for its number, and all axes become constants. A file has its own
order, from left to right, and needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from exportguard.declaration import resolve_object
from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch

if TYPE_CHECKING:
    from exportguard._core import Changes

_BACKEND = "torch.backends.opt_einsum"


def _without_paths(changes: Changes) -> None:
    """What stands for that module in torch 2.11 to 2.13 hands on what the module itself, `m`, has."""
    changes.set_attribute(resolve_object(_BACKEND).m, "is_available", lambda: False)


PATCHES = (
    Patch(
        name="orders of einsum",
        kind="torch",
        target=_BACKEND,
        reason="opt_einsum, where it is installed, asks every size of three operands for its number",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/functional.py",
        awaits=_BACKEND,
        is_in_traces=False,
        probe=expecting(
            Expected(
                path="torch.functional.einsum",
                has=(
                    "opt_einsum.is_available()",
                    "$package.contract_path(equation, *operands, ...)",
                    "_VF.einsum(equation, operands, path=path)",
                ),
            )
        ),
        apply=_without_paths,
    ),
)
