"""What torch holds true of sizes that data decide, which ends with the run that makes sure of it.

`rows[0]` makes sure that there is a row. A branch that is run to see what it does, and the body of a loop, say so of
themselves alone; torch 2.11 to 2.13 know one set of facts for the whole trace, and take `rows[:1]` for one row from
there on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._sympy.symbol import SymT, symbol_is_type

#: Kinds of the symbols of numbers and sizes that tensor data decide.
OF_DATA = (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)


@contextmanager
def ending_facts() -> Iterator[None]:
    """While open, facts on the sizes that data decided before are gathered; behind it they are what they were.

    Those on sizes of inputs stay: they are guards, and the program holds under them alone.
    """
    mode = torch._guards.detect_fake_mode()
    shape_env = mode.shape_env if mode is not None else None
    if shape_env is None:
        yield
        return
    facts = _Facts(shape_env)
    try:
        yield
    finally:
        facts.restore()


class _Facts:
    """Those on the unbacked symbols that there are, by what torch 2.11 to 2.13 keep them in."""

    def __init__(self, shape_env: Any) -> None:
        self._env = shape_env
        symbols = [symbol for symbol in shape_env.var_to_range if symbol_is_type(symbol, OF_DATA)]
        self._ranges = {symbol: shape_env.var_to_range[symbol] for symbol in symbols}
        self._replacements = {symbol: shape_env.replacements.get(symbol) for symbol in symbols}
        self._asserted = {symbol: len(shape_env.deferred_runtime_asserts.get(symbol, ())) for symbol in symbols}
        self._divisible = set(shape_env.divisible)
        self._axioms = dict(shape_env.axioms)

    def restore(self) -> None:
        env = self._env
        known = self._ranges.keys()
        if not known:
            return
        env.var_to_range.update(self._ranges)
        for symbol, target in self._replacements.items():
            if target is not None:
                env.replacements[symbol] = target
            else:
                env.replacements.pop(symbol, None)
        for symbol, count in self._asserted.items():
            del env.deferred_runtime_asserts.get(symbol, [])[count:]
        for new in [fact for fact in env.divisible - self._divisible if fact.free_symbols & known]:
            env.divisible.discard(new)
        for new in [fact for fact in env.axioms if fact not in self._axioms and fact.free_symbols & known]:
            del env.axioms[new]
        env._version_counter += 1  # what is remembered of expressions is forgotten
        env._replacements_version_counter += 1
