"""What a branch or the body of a loop makes sure of sizes that data decide ends with it."""

from __future__ import annotations

from exportguard.declaration.patch import Patch
from exportguard.patches.torch.repeated_blocks import EXPORTER
from exportguard.size_facts import with_ending_facts

_OPERATORS = {
    "branches": "torch._higher_order_ops.cond.CondOp",
    "loops": "torch._higher_order_ops.while_loop.WhileLoopOp",
    "scans": "torch._higher_order_ops.scan.ScanOp",
}

PATCHES = tuple(
    Patch(
        name=f"facts of {bodies}",
        kind="torch",
        target=f"{operator}.__call__",
        awaits=EXPORTER,
        reason="what one body makes sure of a size that data decide is taken for true where it does not run",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/symbolic_shapes.py",
        replace=with_ending_facts,
    )
    for bodies, operator in _OPERATORS.items()
)
