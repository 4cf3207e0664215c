"""Lists, dicts and objects that are elements of a list which a graph has as rows of tensors: each read makes a copy."""

from __future__ import annotations

from torch.utils import _pytree as pytree

from exportguard.rewrites.places import line_now
from exportguard.source.errors import RewriteError


def may_change(element: object) -> bool:
    """Whether an element holds others, so that it may be changed in place: a tuple, if one of those may."""
    if isinstance(element, tuple):
        return any(map(may_change, element))
    return not pytree.tree_structure(element).is_leaf()


class Lent:
    """An element, with what it held when it was read or put into the list."""

    def __init__(self, element: object) -> None:
        self._element = element
        self._before = pytree.tree_flatten(element)

    def require_unchanged(self) -> None:
        """Refuses to read the list behind a change of the element.

        :raises RewriteError: it holds something else by now
        """
        (leaves, spec), (before, known) = pytree.tree_flatten(self._element), self._before
        if spec != known or any(a is not b for a, b in zip(leaves, before, strict=True)):
            raise RewriteError(
                f"{line_now()}: a list is read that a loop over tensors fills, or that a size makes, behind a change "
                "in place of what was read from it or put there; a graph has its elements as rows of tensors, and each "
                "read makes a copy: put the whole element there anew, rows[i] = [a, b]"
            )
