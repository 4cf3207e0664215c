"""Axes that one block alone knows of, as each layer's cache has of its own where axes have no names.

torch finds them equal to others in the middle of the block, so what comes before looks otherwise than in any block that
was traced. A block that begins as an earlier one did is therefore told at its beginning what that one found, and looks
like others from there on. What it was told it has to find itself, too: it must go on as the earlier one, call by call,
to the one that found it there. A trace in which a block was told and went another way is made again, without.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy

from exportguard.repeats.keys import Seen
from exportguard.size_facts import hints_of

if TYPE_CHECKING:
    from exportguard.repeats.paths import Step

Symbols = dict[sympy.Symbol, sympy.Symbol]


@dataclass(eq=False, slots=True)
class OwnAxis:
    """The size of an axis of what a block took from outside, of which torch knew bounds alone."""

    symbol: sympy.Symbol
    knowledge: tuple[Any, ...]  # the bounds, and the size in the example
    block: OwnAxes
    found: Step | None = None  # the call in which torch found what it is equal to

    def equal(self) -> Any:
        """What it was found equal to; None if no call found that, or if it is an axis that is equal to none."""
        expression = None if self.found is None else self.block.shape_env.replace(self.symbol)
        is_own = expression is not None and expression.free_symbols & self.block.unfound
        return None if is_own else expression


class OwnAxes:
    """Those of a block that is running, and the earlier block that it goes along with for what it was told."""

    def __init__(self, shape_env: Any, seen: set[sympy.Symbol]) -> None:
        """`seen` are the symbols in what this block and those before it took from outside; they are added to it."""
        self.shape_env, self._seen = shape_env, seen
        self._open: list[OwnAxis] = []  # equal to nothing so far
        self._replaced = 0  # how many symbols torch had replaced by others when that was looked at
        self.unfound: set[sympy.Symbol] = set()
        self._earlier: OwnAxes | None = None  # of the earlier block
        self._symbols: Symbols = {}  # of the earlier block, as they are here
        self._to_find: set[OwnAxis] = set()  # of the earlier block
        self._beside: tuple[Step, ...] = ()  # where the earlier block may be; none if there is nothing to find

    @property
    def owes(self) -> bool:
        """Whether the block was told what it has not found itself."""
        return bool(self._beside)

    def told(self, key: Any, step: Step) -> bool:
        """Tells the block what an earlier one found of the axes that a call takes; whether there was anything.

        :param step: that of the block's last call
        """
        beside = self._beside or (step,)
        calls = (item for at in beside for item in reversed(at.children.items()))
        for other_key, other in calls:
            if not other.own or (self.owes and other.own[0].block is not self._earlier):
                continue
            symbols = _own_as_here(other, other_key, key, self._symbols, self.shape_env)
            if symbols is None:
                continue
            equal = {axis: axis.equal() for axis in other.own}
            if None in equal.values():  # what it is told would not make it look like others
                continue
            for axis, expression in equal.items():
                _replace(symbols[axis.symbol], expression, self.shape_env)
            self._symbols.update(symbols)
            self._to_find.update(equal)
            self._earlier, self._beside = other.own[0].block, beside
            return True
        return False

    def goes_on(self, key: Any, step: Step) -> bool:
        """Notes a call of the block; False if it was told something, and the earlier block made another call here.

        Blocks that went apart and came together again have one step for what they do from there on, so the earlier
        block may be at several.
        """
        if not self._beside:
            return True
        self._beside = tuple(
            {
                other: None
                for at in self._beside
                for other_key, other in at.children.items()
                if self._is_like(key, step, other_key, other)
            }
        )
        if not self._beside:
            return False
        self._to_find = {axis for axis in self._to_find if axis.found not in self._beside}
        if not self._to_find:
            self._beside = ()
        return True

    def _is_like(self, key: Any, step: Step, other_key: Any, other: Step) -> bool:
        is_like = step.like.get(other)
        if is_like is None:
            is_like = step.like[other] = other is step or _is_same(key, other_key, self._symbols, self.shape_env)
        return is_like

    def of_taken(self, inputs: Iterable[tuple[Any, ...]], others: Iterable[tuple[Any, ...]]) -> tuple[OwnAxis, ...]:
        """Those of what a call takes from outside, before it is traced.

        :param inputs: how the model's inputs among that look
        :param others: how the others look
        """
        taken = []
        for size in _sizes(inputs):
            knowledge = None if size in self._seen else _knowledge(size, self.shape_env)
            if knowledge is not None:
                self._seen.add(size)
                taken.append(OwnAxis(size, knowledge, self))
        for size in itertools.chain(_sizes(inputs), _sizes(others)):
            self._seen |= size.free_symbols if isinstance(size, sympy.Basic) else set()
        self.unfound.update(axis.symbol for axis in taken)
        self._open += taken
        return tuple(taken)

    def note_asked(self) -> None:
        """Called before a call is traced: what the model asked since the last one is not found in a call."""
        self._note_equal()

    def note_found(self, step: Step) -> None:
        """Called when a call was traced: what it found."""
        for axis in self._note_equal():
            axis.found = step
            self.unfound.discard(axis.symbol)

    def _note_equal(self) -> list[OwnAxis]:
        """Those that have become equal to sizes from outside since this was asked last; they are not open any more."""
        replacements = self.shape_env.replacements
        own = {axis.symbol for axis in self._open}
        new = [symbol for symbol in itertools.islice(replacements, self._replaced, None) if symbol not in own]
        self._replaced = len(replacements)
        outside = [self.shape_env.replace(symbol) for symbol in new] if own else []
        equal = [axis for axis in self._open if self._is_equal(axis.symbol, outside, own)]
        self._open = [axis for axis in self._open if axis not in equal]
        return equal

    def _is_equal(self, symbol: sympy.Symbol, outside: Iterable[sympy.Expr], own: set[sympy.Symbol]) -> bool:
        """Whether torch has replaced it, or a size from outside by it and what is known: which it does is for names."""
        if self.shape_env.replace(symbol) != symbol:
            return True
        return any(size.free_symbols & own == {symbol} and not (size - symbol).has(symbol) for size in outside)


def _sizes(looks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    return (size for look in looks for size in look[0])


def _replace(symbol: sympy.Symbol, expression: sympy.Expr, shape_env: Any) -> None:
    """Tells torch that a symbol is equal to an expression, which is what both are from now on.

    torch 2.11 to 2.13 keep the symbol whose name is the first; what earlier blocks remember has the other one.
    """
    shape_env.evaluate_expr(sympy.Eq(symbol, expression))
    if shape_env.replacements.get(expression) == symbol:
        del shape_env.replacements[expression]
        shape_env._update_version_counter()  # which counts the replacements
        shape_env._set_replacement(symbol, expression, "as in earlier blocks")


def _own_as_here(step: Step, other_key: Any, key: Any, known: Symbols, shape_env: Any) -> Symbols | None:
    """The symbols that the own axes of an earlier call have in a call that is the same but for them; else None."""
    own = {axis.symbol: axis for axis in step.own}
    symbols: Symbols = {}
    for one, other in _pairs(key, other_key):
        axis = own.get(other)
        if axis is not None and other not in symbols and one not in symbols.values():
            if _knowledge(one, shape_env) != axis.knowledge:
                return None
            symbols[other] = one
    is_same = len(symbols) == len(own) and _is_same(key, other_key, {**known, **symbols}, shape_env)
    return symbols if is_same else None


def _knowledge(size: Any, shape_env: Any) -> tuple[Any, ...] | None:
    """What is known of a size that no question was asked of; None of others."""
    if not isinstance(size, sympy.Symbol) or shape_env.symbol_guard_counter[size]:
        return None
    hint = hints_of(shape_env).get(size)
    return None if hint is None else (hint, shape_env.var_to_range[size], size in shape_env.size_like)


def _pairs(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    """What stands at the same places of two keys."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        for pair in zip(one, other, strict=False):
            yield from _pairs(*pair)
    else:
        yield one, other


def _is_same(key: Any, other_key: Any, symbols: Symbols, shape_env: Any) -> bool:
    """Whether a call is that of another block, whose symbols are `symbols` here; both in those that are left now.

    How values look that both blocks had before follows from the calls that they made.
    """
    one, other = (part.value if type(part) is Seen else part for part in (key, other_key))
    if isinstance(one, tuple):
        is_as_long = isinstance(other, tuple) and len(one) == len(other)
        return is_as_long and all(_is_same(*parts, symbols, shape_env) for parts in zip(one, other, strict=True))  # type: ignore[arg-type]
    if isinstance(other, sympy.Basic) and other.free_symbols:
        other = shape_env.replace(other.xreplace(symbols))
    return bool(one == other)
