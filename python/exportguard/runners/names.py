"""The names of what a model is given."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidArgumentError


def require_same(expected: Sequence[str], got: Sequence[str]) -> None:
    """Checks that every input of a model is given and nothing else.

    Raises:
        InvalidArgumentError: with the names that are missing or unknown.
    """
    missing = [name for name in expected if name not in got]
    unknown = [name for name in got if name not in expected]
    if missing or unknown:
        raise InvalidArgumentError(
            f"the model's inputs are {', '.join(expected)}; "
            f"missing: {', '.join(missing) or 'none'}, unknown: {', '.join(unknown) or 'none'}"
        )
