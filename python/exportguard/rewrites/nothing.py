"""What stands for None in a variable that may be None where tensor data say so (`rules.optional_variables`)."""

from __future__ import annotations

from exportguard.rewrites.contents import Bookkeeping
from exportguard.source.errors import RewriteError


class _Nothing(Bookkeeping):
    """Stands for None beside a truth value that says so."""

    def __repr__(self) -> str:
        return "None"


NOTHING = _Nothing()


class NoneMetError(RewriteError):
    """A variable is None on one way through a branch or a loop and a value on another, which no graph can hold; one
    that says beside it whether it is there can."""
