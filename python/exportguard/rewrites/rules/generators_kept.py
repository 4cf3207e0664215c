"""Puts a function with `yield` beside what the other rules made of it, as its source has it."""

from __future__ import annotations

import ast

from exportguard.rewrites.engine import Unit
from exportguard.source.walking import walked

ORDER = 96


def apply(unit: Unit) -> None:
    """Adds what `generators` kept; what it is of was noted there."""
    for node in walked(unit.node):
        plain = getattr(node, "exportguard_plain", None)
        if isinstance(node, ast.FunctionDef) and plain is not None:
            node.body.insert(0, plain)
