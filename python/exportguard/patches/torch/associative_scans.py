"""`associative_scan` as one operator for any number of elements: torch takes it apart for the number of the example."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.declaration.patch import NEEDED, Patch, Verdict, target_missing

# With combine_mode="generic" torch 2.11 to 2.13 call a tree of batches, whose depth and sizes are those of the example.
_MODULE = "torch._higher_order_ops.associative_scan"
_TARGET = f"{_MODULE}.generic_associative_scan"

# The package has functions of the same names.
_scan: Any = importlib.import_module("torch._higher_order_ops.scan")

Scan = Callable[..., Sequence[torch.Tensor]]


def _running(combine: Callable[..., Any], elements: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """One element after the other. The first is what it is; as nothing comes before it, it is combined with itself and
    that is dropped, so that there is a turn for each and none more than there are."""

    def turn(before: Any, xs: Any) -> tuple[Any, Any]:
        is_first, *values = before
        combined = pytree.tree_leaves(combine(*values, *xs))
        values = [torch.where(is_first, x, y) for x, y in zip(xs, combined, strict=True)]
        # The same tensor twice would be an alias, which the operator refuses.
        return [torch.zeros_like(is_first), *values], [value.clone() for value in values]

    is_first = torch.ones((), dtype=torch.bool, device=elements[0].device)
    initial = [is_first, *(element[0].clone() for element in elements)]
    return pytree.tree_leaves(_scan.scan(turn, initial, list(elements), dim=0)[1])


def _of_elements(operator: Any) -> Callable[..., Any] | None:
    """The user's function of two elements: torch hands on a partial of what flattens lists, and in it `vmap` of that
    function, a closure over it."""
    batched = getattr(operator, "keywords", {}).get("combine_fn")
    return inspect.getclosurevars(batched).nonlocals.get("func") if inspect.isfunction(batched) else None


def as_one_operator(original: Scan) -> Scan:
    """The scan as torch's `scan`, an operator that holds the function as its body."""

    @functools.wraps(original)
    def scanned(operator: Any, leaves: Sequence[torch.Tensor], dim: int = 0, additional_inputs: Any = ()) -> Any:
        combine = _of_elements(operator)
        if combine is None or not torch.compiler.is_exporting():
            return original(operator, leaves, dim, additional_inputs)
        one = functools.partial(operator.func, **{**operator.keywords, "combine_fn": combine})
        return _running(one, leaves)

    return scanned


def _probe() -> Verdict:
    return NEEDED if hasattr(_scan, "scan") else target_missing("torch has no scan")


PATCHES = (
    Patch(
        name="associative scans of any length",
        kind="torch",
        target=_TARGET,
        reason="the tree of calls that torch makes of it is that of one number of elements",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_higher_order_ops/associative_scan.py",
        probe=_probe,
        replace=as_one_operator,
    ),
)
