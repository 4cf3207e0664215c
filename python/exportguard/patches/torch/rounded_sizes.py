"""Sums of sizes with remainders, written without these where that is shorter: `n + -n % 8` is `8 * ((n + 7) // 8)`.

So are sizes that were padded to whole windows, pooled and padded again. Each remainder has the size before it twice,
and torch asks for the parts of a size behind some windows for minutes, where it finds that two of them are the same at
all. What was rounded up is a whole number of windows, which torch sees at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import sympy

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch

# Every sum of two sizes comes from it, in torch 2.11 to 2.13.
_TARGET = "torch.fx.experimental.sym_node._optimized_add"


def rounding(original: Callable[..., Any]) -> Callable[..., Any]:
    """What torch makes of a sum, and whether it is one of symbols alone, which has no remainders."""

    @functools.wraps(original)
    def optimized_add(*args: Any, **kwargs: Any) -> tuple[bool, sympy.Expr]:
        is_of_symbols, total = original(*args, **kwargs)
        return is_of_symbols, total if is_of_symbols else without_remainders(total)

    return optimized_add


@functools.lru_cache(maxsize=1024)
def without_remainders(total: sympy.Expr) -> sympy.Expr:
    """The same number for all sizes, by quotients if that has fewer symbols in it.

    A remainder of Python's is `n % m == n - m * (n // m)`, whatever the signs; by 2, `n` and `-n` leave the same.
    """
    remainders = [term for term in sympy.Add.make_args(total) if _remainder(term) is not None]
    if not remainders:
        return total
    forms = [total, _by_quotients(total)]
    forms += [total - term + _other_side(term) for term in remainders if _divisor(term) == 2]
    return min(forms, key=lambda form: sum(1 for _ in _symbols(form)))


def _symbols(form: sympy.Expr) -> Iterator[sympy.Symbol]:
    """Each as often as it stands there."""
    return (part for part in sympy.preorder_traversal(form) if part.is_Symbol)


def _remainder(term: sympy.Expr) -> tuple[int, sympy.Expr] | None:
    """How often a term has a remainder, and the remainder; None if it is something else."""
    from torch.utils._sympy.functions import Mod, PythonMod  # takes long to import, and who adds sizes has it by then

    count, rest = term.as_coeff_Mul()
    return (int(count), rest) if isinstance(rest, Mod | PythonMod) and count.is_Integer else None


def _divisor(term: sympy.Expr) -> sympy.Expr:
    found = _remainder(term)
    return None if found is None else found[1].args[1]


def _by_quotients(total: sympy.Expr) -> sympy.Expr:
    parts = [(term, _remainder(term)) for term in sympy.Add.make_args(total)]
    return sympy.Add(*(term if found is None else found[0] * _left(*found[1].args) for term, found in parts))


def _other_side(term: sympy.Expr) -> sympy.Expr:
    """A remainder by 2, as that of the negative number."""
    found = _remainder(term)
    assert found is not None
    return found[0] * _left(-found[1].args[0], found[1].args[1])


def _left(number: sympy.Expr, divisor: sympy.Expr) -> sympy.Expr:
    number = _by_quotients(number)
    return sympy.expand(number - divisor * _quotient(number, divisor))


def _quotient(number: sympy.Expr, divisor: sympy.Expr) -> sympy.Expr:
    """Rounded down, in one form: whole multiples beside it, and of a negative number what rounds the other up."""
    from torch.utils._sympy.functions import FloorDiv

    terms = sympy.Add.make_args(sympy.expand(number))
    whole = [term for term in terms if _is_whole(term / divisor)]
    multiple = sympy.Add(*(term / divisor for term in whole))
    rest = sympy.Add(*(term for term in terms if term not in whole))
    if divisor.is_Integer and divisor > 0 and any(map(_is_negative, sympy.Add.make_args(rest))):
        return multiple - FloorDiv(divisor - 1 - rest, divisor)
    return multiple + FloorDiv(rest, divisor)


def _is_whole(quotient: sympy.Expr) -> bool:
    """As torch asks: sympy before 1.15 takes fractions in products for whole numbers."""
    return bool(quotient.is_integer) and all(number.q == 1 for number in quotient.atoms(sympy.Rational))


def _is_negative(term: sympy.Expr) -> bool:
    return not term.is_number and bool(term.as_coeff_Mul()[0] < 0)


PATCHES = (
    Patch(
        name="sizes rounded up",
        kind="torch",
        target=_TARGET,
        reason="a size padded to whole windows is in the next one twice, and torch takes minutes for the last of them",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/sym_node.py",
        probe=expecting(
            Expected(
                path=_TARGET,
                parameters="lhs, rhs, lhs_is_optimized_summation, rhs_is_optimized_summation",
                has=("sympy.Add(lhs, rhs)",),
            )
        ),
        replace=rounding,
    ),
)
