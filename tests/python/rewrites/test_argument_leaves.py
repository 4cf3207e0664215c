"""The leaves of what a function of torch takes are those of `pytree`, in its order."""

from __future__ import annotations

import random
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from exportguard.rewrites.argument_leaves import leaves_of, mapped, tensors_of

Pair = namedtuple("Pair", "first second")


class Plain(tuple):
    """No container of pytree's, as is a list that has a class of its own."""


class Registered:
    def __init__(self, item: Any) -> None:
        self.item = item


LEAVES = (
    lambda: torch.zeros(2),
    lambda: torch.nn.Parameter(torch.zeros(1)),
    lambda: 3,
    lambda: None,
    lambda: "text",
    lambda: slice(1, None),
    lambda: torch.Size([1, 2]),
    lambda: torch.float32,
    lambda: Plain((1, 2)),
    lambda: torch.zeros(3, 2).max(0),  # torch's own named tuple
)
CONTAINERS = (
    tuple,
    list,
    lambda items: dict(zip("zyxwv", items, strict=False)),
    lambda items: OrderedDict(zip("zyxwv", items, strict=False)),
    lambda items: defaultdict(list, zip("zyxwv", items, strict=False)),
    deque,
    lambda items: Pair(items, None),
    Registered,
)


@pytest.fixture(autouse=True)
def _a_class_that_is_registered() -> Any:
    pytree.register_pytree_node(Registered, lambda own: ([own.item], None), lambda items, _: Registered(*items))
    yield
    pytree._deregister_pytree_node(Registered)


def drawn(numbers: random.Random, depth: int) -> Any:
    if depth == 0 or numbers.random() < 0.3:
        return numbers.choice(LEAVES)()
    return numbers.choice(CONTAINERS)([drawn(numbers, depth - 1) for _ in range(numbers.randrange(4))])


def form(tree: Any) -> Any:
    """What can be compared: containers by their classes, leaves by what they are."""
    leaves, spec = pytree.tree_flatten(tree)
    return [*map(id, leaves)], spec


@pytest.mark.parametrize("seed", range(40))
def test_leaves_are_those_of_pytree(seed: int) -> None:
    tree = drawn(random.Random(seed), 4)
    expected = pytree.tree_leaves(tree)
    assert [*map(id, leaves_of(tree))] == [*map(id, expected)]
    assert [*map(id, tensors_of(tree))] == [id(leaf) for leaf in expected if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_made_of_leaves_has_the_same_containers(seed: int) -> None:
    tree = drawn(random.Random(seed), 4)
    others: dict[int, Any] = {}

    def other(leaf: Any) -> Any:
        return others.setdefault(id(leaf), (object(), leaf))[0]

    assert form(mapped(other, tree)) == form(pytree.tree_map(other, tree))
