"""The outcomes of two branches as one list of tensors and what both have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from exportguard.rewrites.build import RETURNED
from exportguard.rewrites.carrying import NUMBERS, Kind, kind_of
from exportguard.rewrites.collected import Maybe
from exportguard.rewrites.contents import Order, RandomState
from exportguard.rewrites.data import describe, require_no_attributes, structure_of
from exportguard.rewrites.nothing import NOTHING, NoneMetError
from exportguard.rewrites.numbers import is_number
from exportguard.rewrites.opening import Opening, closed, where_they_differ
from exportguard.rewrites.sharing import at, named_together, replaced
from exportguard.rewrites.state import MISSING, UNDEFINED, Slot
from exportguard.source.errors import RewriteError

Outcome = tuple[Any, list[Any]]  # what a branch returns, and what the places hold that a branch writes


def parts_of_result(result: Any, names: Sequence[str]) -> list[Any]:
    """The variables that a branch returns; those without names with how it is left, in tuples in tuples."""
    if type(result) is not tuple:  # and not a class of such
        return [result]
    return [*result] if names else [leaf for part in result for leaf in parts_of_result(part, names)]


def with_parts(result: Any, names: Sequence[str], parts: Iterable[Any]) -> Any:
    """The same result with other parts."""
    made = iter(parts)

    def filled(item: Any) -> Any:
        return tuple(map(filled, item)) if type(item) is tuple else next(made)

    return tuple(made) if names and type(result) is tuple else filled(result)


def are_alike(first: Any, second: Any, names: Sequence[str]) -> bool:
    """Whether the results of two branches are the same tuples of tuples."""
    forms = [with_parts(r, names, [None] * len(parts_of_result(r, names))) for r in (first, second)]
    return bool(forms[0] == forms[1])


def _form_of(first: Any, second: Any) -> Any:
    """What two results are like, where what stands for None may be of many values."""
    if type(first) is tuple and type(second) is tuple and len(first) == len(second):
        return tuple(map(_form_of, first, second))
    return second if first is NOTHING else first


def _none_meets(first: Any, second: Any) -> bool:
    """Whether one of two results has None where the other has something else."""
    if type(first) is tuple and type(second) is tuple and len(first) == len(second):
        return any(map(_none_meets, first, second))
    return (first is None) != (second is None)


def _filled(result: Any, form: Any) -> Any:
    if type(result) is tuple and type(form) is tuple and len(result) == len(form):
        return tuple(map(_filled, result, form))
    return pytree.tree_map(_nothing_like, form) if result is NOTHING and type(form) is tuple else result


class _Common:
    """Stands for what both branches leave as one and the same object."""


_COMMON = _Common()


class Merge:
    """The outcomes of two branches as one list of tensors and what both have in common.

    :param leaving: the branch, "then" or "else", that leaves a block
    :param slots: the places that a branch writes: attributes, entries, elements
    :param is_older: whether an object was there before the branches ran
    :raises RewriteError: the branches give values that one graph cannot hold, naming variable and line
    """

    def __init__(
        self,
        outcomes: tuple[Outcome, Outcome],
        *,
        names: Sequence[str],
        slots: Sequence[Slot] = (),
        is_older: Callable[[Any], bool] = lambda item: False,
        line: int = 0,
        leaving: str = "",
    ) -> None:
        self._leaving = leaving
        self._names = names
        self.slots = slots
        self._line = line
        self._form = _form_of(outcomes[0][0], outcomes[1][0])
        self._first, self._second = map(self._filled, outcomes)
        are_tuples = type(self._first[0]) is tuple and type(self._second[0]) is tuple  # and not a class of such
        self._is_many = bool(names) and are_tuples
        are_of_parts = bool(names) == self._is_many and are_alike(self._first[0], self._second[0], names)
        self._is_whole = not are_of_parts  # the result is one part
        self._left_out = [_left_out(s, a, b) for s, a, b in zip(slots, self._first[1], self._second[1], strict=True)]
        pairs = list(zip(self._parts(self._first), self._parts(self._second), strict=True))
        self._templates = [self._template(name, *pair) for name, pair in zip(self._part_names(), pairs, strict=True)]
        self._parts_in_common = [_in_common(a, b) for a, b in pairs]
        self._older = [
            (place, path, item) for place, (a, b) in enumerate(pairs) for path, item in replaced(a, b, is_older)
        ]
        self._kinds: list[Kind | None] = []
        self._common: list[Any] = []
        self._tensors: list[torch.Tensor] = []
        self._compare()

    def _compare(self) -> None:
        first, second = self._masked(self._first), self._masked(self._second)
        self._opening = Opening(first, second)
        first, second = self._opening.opened(first), self._opening.opened(second)
        first_leaves, self._spec = pytree.tree_flatten(first, is_leaf=_is_leaf)
        second_leaves, spec = pytree.tree_flatten(second, is_leaf=_is_leaf)
        if spec != self._spec:
            raise self._of_two_structures(first, second)
        paths = [path for path, _ in pytree.tree_flatten_with_path(first, is_leaf=_is_leaf)[0]]
        for path, a, b in zip(paths, first_leaves, second_leaves, strict=True):
            self._add(path, a, b)

    def _of_two_structures(self, first: Any, second: Any) -> RewriteError:
        """Which variable or place the branches leave with another number of parts."""
        pairs = enumerate(zip(first, second, strict=True))
        named = (where_they_differ(self._name([pytree.SequenceKey(place)]), *pair) for place, pair in pairs)
        name, *parts = next(part for part in named if part is not None)
        return (NoneMetError if _none_meets(*parts) else RewriteError)(
            f"{self._where()}the branches of a test on tensor data give {name} values of different structure: "
            f"{' and '.join(map(structure_of, parts))}; give it as many tensors in both branches, in containers of one "
            "kind, or append to a list that the function makes"
        )

    # -------------------------------------------------------------------------------------- parts

    def _filled(self, outcome: Outcome) -> Outcome:
        """An outcome without names in which None is as many values as where the other branch gives some."""
        return outcome if self._names else (_filled(outcome[0], self._form), outcome[1])

    def _parts(self, outcome: Outcome) -> list[Any]:
        """The variables, or the one result, and the contents of the places."""
        result, held = outcome
        return [*([result] if self._is_whole else parts_of_result(result, self._names)), *held]

    def _part_names(self) -> list[str]:
        count = len(self._parts(self._first))
        return [*(self._names if self._is_many else ()), *[""] * count][:count]

    def _template(self, name: str, a: object, b: object) -> Any:
        """What stands for a variable without a value where nothing reads it: on a path that leaves a block, or, if it
        is what the block returns, on the path that does not leave it; or where another one says that it is None."""
        if (a is NOTHING) != (b is NOTHING) and a is not UNDEFINED and b is not UNDEFINED:
            return pytree.tree_map(_nothing_like, b if a is NOTHING else a)
        if (a is UNDEFINED) == (b is UNDEFINED):
            return None
        is_left = bool(name) and self._leaving == ("then" if a is UNDEFINED else "else")
        if not is_left and not name.startswith(RETURNED):
            return None
        return pytree.tree_map(lambda leaf: UNDEFINED, b if a is UNDEFINED else a)

    def _masked(self, outcome: Outcome) -> Any:
        """An outcome without what both have in common, and with elements that may be missing as such."""
        templates = zip(self._templates, self._parts(outcome), strict=True)
        parts = [template if template is not None and _has_none(part) else part for template, part in templates]
        held = len(parts) - len(self.slots)
        for k, absent in enumerate(self._left_out):
            if absent is not None:
                parts[held + k] = _perhaps(parts[held + k], absent)
        masked = [_COMMON if same else p for p, same in zip(parts, self._parts_in_common, strict=True)]
        return tuple(UNDEFINED if u else part for part, u in zip(masked, self._undefined(), strict=True))

    def _undefined(self) -> list[bool]:
        """Variables of one branch alone; reading one behind the test is an error. Those without names are of a step
        that may give them no value, and are carried."""
        unnamed = 0 if self._is_many or self._is_whole else len(self._templates) - len(self.slots)
        triples = zip(self._templates, self._parts(self._first), self._parts(self._second), strict=True)
        return [
            k >= unnamed and template is None and (a is UNDEFINED or b is UNDEFINED)
            for k, (template, a, b) in enumerate(triples)
        ]

    @property
    def tensor_count(self) -> int:
        """How many tensors each branch gives."""
        return sum(kind is not None for kind in self._kinds)

    def plain_tensors(self) -> list[torch.Tensor]:
        """Tensors that a branch returns as they are, so that they may have been seen by no function."""
        return self._tensors

    def tensors_of(self, outcome: Outcome) -> list[torch.Tensor]:
        """What a run of a branch adds to the results of the graph."""
        leaves = pytree.tree_leaves(self._opening.opened(self._masked(self._filled(outcome))), is_leaf=_is_leaf)
        return [kind.start(leaf) for leaf, kind in zip(leaves, self._kinds, strict=True) if kind is not None]

    def sources(self) -> list[list[torch.Tensor]]:
        """For each result the tensors of the branches that it may be."""
        made = []
        for outcome in (self._first, self._second):
            leaves = pytree.tree_leaves(self._opening.opened(self._masked(outcome)), is_leaf=_is_leaf)
            made.append([leaf for leaf, kind in zip(leaves, self._kinds, strict=True) if kind is not None])
        return [[leaf for leaf in pair if isinstance(leaf, torch.Tensor)] for pair in zip(*made, strict=True)]

    def rebuild(self, tensors: list[torch.Tensor]) -> Outcome:
        """What the program goes on with: the results of the graph in the places of the branches' values."""
        made = iter(tensors)
        leaves = [
            common if kind is None else kind.standing_for(next(made))
            for kind, common in zip(self._kinds, self._common, strict=True)
        ]
        merged = closed(pytree.tree_unflatten(leaves, self._spec))
        first = self._parts(self._first)
        parts = [own if part is _COMMON else part for own, part in zip(first, merged, strict=True)]
        held = len(parts) - len(self.slots)
        made = parts[0] if self._is_whole else with_parts(self._first[0], self._names, parts[:held])
        return made, parts[held:]

    # -------------------------------------------------------------------------------------- leaves

    def _add(self, path: object, a: object, b: object) -> None:
        if a is b or _is_same(a, b):
            self._kinds.append(None)
            self._common.append(a)
            return
        for leaf in (a, b):
            require_no_attributes(leaf)
        known = [leaf for leaf in (a, b) if leaf is not UNDEFINED]
        if known == [NOTHING]:
            self._kinds.append(None)
            self._common.append(NOTHING)
            return
        is_tensor = isinstance(known[0], torch.Tensor | NUMBERS)
        if len(known) == 1 and is_tensor:  # carried by a loop that may give it no value
            self._kinds.append(kind_of(known[0]))
            self._common.append(None)
            self._tensors += [leaf for leaf in known if isinstance(leaf, torch.Tensor)]
            return
        if not all(isinstance(leaf, torch.Tensor | NUMBERS) for leaf in (a, b)):
            is_python = not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor)
            kinds = "different Python values" if is_python else "values of different kinds"
            raise self._error(f"give {self._name(path)} {kinds}", a, b)
        self._kinds.append(self._kind(path, a, b))
        self._common.append(None)
        self._tensors += [leaf for leaf in (a, b) if isinstance(leaf, torch.Tensor)]

    def _kind(self, path: object, a: object, b: object) -> Kind:
        first, second = kind_of(a), kind_of(b)
        if first.is_number and second.is_number:
            return first.joined(second) if first.rank >= second.rank else second.joined(first)
        if first.is_number or second.is_number:
            number, tensor = (first, second) if first.is_number else (second, first)
            if tensor.shape or number.rank > tensor.rank:
                raise self._error(f"give {self._name(path)} values of different kinds", a, b)
            return tensor.joined(number)
        if not first.is_like(second):
            raise self._error(f"give {self._name(path)} values of different kinds", a, b)
        return first.joined(second)

    def _name(self, path: Any) -> str:
        place = path[0].idx
        held = len(self._parts(self._first)) - len(self.slots)
        if place >= held:
            return f"`{self.slots[place - held].describe()}`{pytree.keystr(path[1:])}"
        if self._is_many and place < len(self._names):
            return f"`{self._names[place]}`{pytree.keystr(path[1:])}"
        return self._names[0] if self._names else "the result"

    def containers(self, merged: Outcome) -> list[tuple[str, Any, Any]]:
        """Lists, dicts and objects from before the test that one branch leaves, with what the program goes on with, and
        those that two variables are together behind a branch."""
        parts = self._parts(merged)
        names = [self._name([pytree.SequenceKey(k)]) for k in range(len(parts))]
        named = [(names[k], older, at(parts[k], path)) for k, path, older in self._older]
        found = [(name, older, new) for name, older, new in named if new is not None and new is not older]
        for outcome in (self._first, self._second):
            found += named_together(names, self._parts(outcome), parts)
        return found

    def _where(self) -> str:
        return f"line {self._line}: " if self._line else ""

    def _error(self, what: str, a: object, b: object) -> RewriteError:
        return (NoneMetError if a is None or b is None else RewriteError)(
            f"{self._where()}the branches of a test on tensor data {what}: {describe(a)} and {describe(b)}; "
            + _remedy(a)
        )


def _remedy(value: object) -> str:
    if isinstance(value, Order):
        return "assign the keys in one order"
    if isinstance(value, RandomState):
        return "draw random numbers in front of the test, or as many in both branches"
    if isinstance(value, str):
        return "no graph has texts: use a number in its place, 0 or 1, and compare and look up by that"
    return "give both branches tensors of one shape and dtype"


def _is_leaf(item: object) -> bool:
    return item is None


def _has_none(part: object) -> bool:
    """Whether a variable has no value, or stands for one that is None."""
    return part is UNDEFINED or part is NOTHING


def _in_common(a: object, b: object) -> bool:
    """Whether both branches leave one object that is more than a value."""
    return a is b and not isinstance(a, NUMBERS | str) and a is not None and a is not UNDEFINED


def _left_out(slot: Slot, a: object, b: object) -> Any:
    """For an element that one branch alone appends: what stands for it where it is missing."""
    if slot.kind != "element" or (a is MISSING) == (b is MISSING):
        return None
    template = b if a is MISSING else a
    value = template.value if isinstance(template, Maybe) else template
    if not all(isinstance(leaf, torch.Tensor | NUMBERS) for leaf in pytree.tree_leaves(value)):
        return None
    return value


def _perhaps(element: object, template: object) -> Maybe:
    if isinstance(element, Maybe):
        return element
    if element is not MISSING:
        return Maybe(element, True)
    return Maybe(pytree.tree_map(_nothing_like, template), False)


def _nothing_like(leaf: object) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return type(leaf)(0) if isinstance(leaf, bool | int | float) else 0
    made = torch.zeros([size if _is_known(size) else 0 for size in leaf.shape], dtype=leaf.dtype)
    return kind_of(leaf).standing_for(made) if is_number(leaf) else made


def _is_known(size: Any) -> bool:
    """Whether the program that is traced has a size: the other branch may have made it."""
    mode = get_proxy_mode()
    if mode is None or not isinstance(size, torch.SymInt):
        return True
    known = mode.tracer.sympy_expr_tracker  # torch 2.11 to 2.13: by expression
    return size.node.expr in known or free_unbacked_symbols(size) <= known.keys()


def _is_same(a: object, b: object) -> bool:
    if isinstance(a, torch.SymInt | torch.SymFloat | torch.SymBool) and type(a) is type(b):
        return bool(a.node.expr == b.node.expr)
    is_value = isinstance(a, bool | int | float | str | bytes | torch.dtype | torch.device | Order | RandomState)
    return type(a) is type(b) and is_value and a == b
