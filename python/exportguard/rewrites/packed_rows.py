"""Elements of several sizes: parts of one tensor, of which each is told by where it begins and how long it is.

A graph has no list of tensors of different sizes that a loop could fill. What the steps make is one tensor, in which
the elements lie behind each other along the axis whose size differs, and two integers for each. Which loops fill such a
list is found by what is done with it: `torch.stack` wants one size, and a scan makes the rows of one tensor faster.
Where something else asks, or nothing, the program is traced again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from exportguard.rewrites.checks import check_data
from exportguard.rewrites.places import line_now
from exportguard.rewrites.raising import require_no_handler
from exportguard.source.errors import RewriteError, forget

Result = TypeVar("Result")

#: The lines of the loops whose lists hold elements of several sizes, for the traces of one export.
_LOOPS: ContextVar[set[str] | None] = ContextVar("loops that fill packed lists", default=None)
#: Those of the loops whose elements have sizes of a step and are rows of one tensor all the same, for one trace, and
#: whether anything stacked them.
_OF_ONE_SIZE: ContextVar[dict[str, bool]] = ContextVar("loops whose elements are to have one size")


class SizesDifferError(RewriteError):
    """A list is asked for something of which the sizes of its elements may differ.

    :param loops: the lines of the loops that fill it
    """

    def __init__(self, text: str, loops: frozenset[str]) -> None:
        super().__init__(text)
        self.loops = loops


def fills_packed(line: str) -> bool:
    """Whether the elements that a loop appends lie behind each other in one tensor."""
    return line in (_LOOPS.get() or ())


def note_rows(line: str, *, are_stacked: bool = False) -> None:
    """Notes that a loop makes rows of one tensor of elements whose sizes it makes, or that something stacks them."""
    found = _OF_ONE_SIZE.get({})
    found[line] = found.get(line, False) or are_stacked


@contextmanager
def remembered_lists() -> Iterator[None]:
    """While open, what one trace found out about the lists of a model is known to those that follow."""
    token = _LOOPS.set(set() if _LOOPS.get() is None else _LOOPS.get())
    try:
        yield
    finally:
        _LOOPS.reset(token)


def with_packed_lists(trace: Callable[[], Result], begin_again: Callable[[], None]) -> Result:
    """What a trace gives, again with the loops packed that fill lists whose elements differ.

    :param begin_again: puts back what a trace that stopped has changed
    """
    with remembered_lists():
        known = _LOOPS.get()
        assert known is not None
        while True:
            found: dict[str, bool] = {}
            token = _OF_ONE_SIZE.set(found)
            try:
                traced = trace()
                loops = frozenset(line for line, are_stacked in found.items() if not are_stacked)
                if loops <= known:
                    return traced
            except SizesDifferError as error:
                if error.loops <= known:
                    raise
                loops = error.loops
                forget(error)
            finally:
                _OF_ONE_SIZE.reset(token)
            known |= loops
            begin_again()


class Pool:
    """A tensor whose elements, behind each other along its first axis, are those of a list along another one.

    :param axis: of the elements
    """

    def __init__(self, tensor: torch.Tensor, axis: int, made_in: Sequence[Any] | None = None) -> None:
        """`made_in` are the bodies that were run when it was made; those that are by default."""
        from exportguard.rewrites.recording import bodies_now  # which knows lists

        self._tensor = tensor
        self.axis = axis
        self._made_in = bodies_now() if made_in is None else made_in

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor, for the body that made it and those within.

        :raises RewriteError: it was made in a branch, or in a step of a loop, that came to its end
        """
        from exportguard.rewrites.recording import bodies_now

        if bodies_now()[: len(self._made_in)] != self._made_in:
            raise RewriteError(
                f"{line_now()}: a list of tensors of several sizes is used outside of the branch or the step that "
                "filled it; join its elements there, with torch.cat or torch.nn.utils.rnn.pad_sequence"
            )
        return self._tensor

    def through(self, replace: Callable[[Any], Any]) -> Pool:
        """The same with what stands for the tensor in a body."""
        return Pool(replace(self._tensor), self.axis, self._made_in)


@dataclass(frozen=True, eq=False)
class Parts:
    """Elements of a pool, or one of them.

    :param starts: where they begin: int64 of rank 1, or of rank 0 for one
    :param lengths: how many rows of the pool they have, as many numbers
    :param are_all: whether they are all that the pool has, in its order
    """

    starts: torch.Tensor
    lengths: torch.Tensor
    pool: Pool
    are_all: bool = False

    @property
    def is_one(self) -> bool:
        """Whether it stands for one element."""
        return self.lengths.dim() == 0

    def element(self) -> torch.Tensor:
        """The tensor that one element is."""
        count = _count(self.lengths)
        rows = self.pool.tensor.index_select(0, torch.arange(count) + self.starts)
        return rows.movedim(0, self.pool.axis)

    def together(self) -> torch.Tensor:
        """The rows of all elements, along the first axis."""
        if self.are_all:
            return self.pool.tensor
        total = _count(self.lengths.sum())
        before = self.starts - (self.lengths.cumsum(0) - self.lengths)
        places = torch.arange(total) + before.repeat_interleave(self.lengths, output_size=total)
        return self.pool.tensor.index_select(0, places)

    def _rows_at(self, places: torch.Tensor) -> torch.Tensor:
        """Rows of the pool, as many for each element."""
        tensor = self.pool.tensor
        return tensor.index_select(0, places.flatten()).reshape(*places.shape, *tensor.shape[1:])

    def joined(self, dim: int) -> torch.Tensor:
        """`torch.cat` of the elements."""
        rank = self.pool.tensor.dim()
        if dim % rank == self.pool.axis:
            return self.together().movedim(0, self.pool.axis)
        rows = self.stacked()
        return rows.movedim(0, dim % rank).flatten(dim % rank, dim % rank + 1)

    def stacked(self) -> torch.Tensor:
        """The elements as the rows of one tensor. A run ends where their sizes differ, as `torch.stack` does."""
        require_no_handler(RuntimeError, "elements of several sizes")
        longest = _count(self.lengths.amax())
        check_data((self.lengths == longest).all())
        # A file has no checks: a row that is not there is looked for, which ends a run as well.
        missing = (self.lengths != longest).to(torch.int64) * self.pool.tensor.shape[0]
        places = self.starts.unsqueeze(1) + torch.arange(longest) + missing.unsqueeze(1)
        return self._rows_at(places).movedim(1, self.pool.axis + 1)

    def padded(
        self, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
    ) -> torch.Tensor:
        """`pad_sequence` of the elements, of which the first axis has the sizes that differ."""
        if self.pool.axis:
            rows = self.stacked()
            return rows if batch_first else rows.transpose(0, 1)
        longest = _count(self.lengths.amax())
        steps = torch.arange(longest)
        places = steps if padding_side == "right" else steps - longest + self.lengths.unsqueeze(1)
        are_there = ((places >= 0) & (places < self.lengths.unsqueeze(1))).expand(self.lengths.shape[0], longest)
        first = self.starts.unsqueeze(1) + places
        rows = self._rows_at(first.masked_fill(~are_there, 0))
        mask = are_there.reshape(*are_there.shape, *[1] * (rows.dim() - 2))
        padded = torch.where(mask, rows, torch.scalar_tensor(padding_value, dtype=rows.dtype))
        return padded if batch_first else padded.transpose(0, 1)


def _count(number: torch.Tensor) -> Any:
    """How many there are, as a size."""
    count = number.item()
    torch._check(count >= 0)  # type: ignore[no-untyped-call]
    return count


def several_sizes() -> SizesDifferError:
    """What stops a trace where a loop fills a list with tensors that are not known to be of one size."""
    line = line_now()
    text = (
        f"{line}: a list that a loop over tensors fills, or a branch, has elements of several sizes, or of sizes that "
        "data decide; a graph holds them as rows of one tensor: join them where they are made, "
        "out = torch.cat([out, part]), or pad them to one size"
    )
    return SizesDifferError(text, frozenset((line,)))


def axis_of_sizes(pieces: Sequence[Any]) -> int | None:
    """The axis of elements along which those of several rows have sizes that may differ; None if none does.

    Torch would take those that data decide for equal, and note that a run is to check it, which no file does.

    :raises RewriteError: they differ along several axes, or are no tensors
    """
    leaves = [[piece] if isinstance(piece, torch.Tensor) else pytree.tree_leaves(piece) for piece in pieces]
    known = [part for part in leaves if all(isinstance(leaf, torch.Tensor) for leaf in part)]
    axes = {axis for column in zip(*known, strict=False) for axis in differing_axes([t.shape[1:] for t in column])}
    if axes and (len(axes) > 1 or not all(isinstance(piece, Parts | torch.Tensor) for piece in pieces)):
        raise RewriteError(
            f"{line_now()}: the elements of a list have several sizes, or sizes that data decide, along several axes "
            "or in lists, tuples and dicts; a graph has such tensors behind each other in one: have a list for each of "
            "them, with sizes that differ along one axis, or pad them to one size"
        )
    return next(iter(axes), None)


def differing_axes(shapes: Sequence[Sequence[Any]]) -> set[int]:
    """The axes along which shapes of one rank have sizes that are not known to be equal."""
    with disable_proxy_modes_tracing():
        return {
            axis
            for shape in shapes[1:]
            for axis, (a, b) in enumerate(zip(shapes[0], shape, strict=False))
            if not statically_known_true(a == b)
        }


def pooled(pieces: Sequence[Any], mark: Callable[[torch.Tensor], torch.Tensor], along: int | None = None) -> Parts:
    """Elements of several pools, and rows of elements of one size, as those of one pool.

    :param mark: marks a tensor as one of numbers
    :param along: the axis along which rows of elements differ; None if it is that of the pools
    :raises RewriteError: they differ along several axes, or in dtype or rank
    """
    axes = {piece.pool.axis for piece in pieces if isinstance(piece, Parts)}
    axes |= set() if along is None else {along}
    if len(axes) > 1 or not all(isinstance(piece, Parts | torch.Tensor) for piece in pieces):
        raise RewriteError(f"{line_now()}: the tensors of a list have several sizes along more than one axis")
    (axis,) = axes
    tensors = [piece.together() if isinstance(piece, Parts) else _behind_each_other(piece, axis) for piece in pieces]
    if len({(tensor.dim(), tensor.dtype) for tensor in tensors}) > 1:
        raise RewriteError(f"{line_now()}: a list of tensors of several sizes has elements of another rank or dtype")
    lengths = torch.cat([piece.lengths if isinstance(piece, Parts) else _of_rows(piece, axis) for piece in pieces])
    return parts_of_pool(Pool(torch.cat(tensors), axis), lengths, mark)


def parts_of_pool(pool: Pool, lengths: torch.Tensor, mark: Callable[[torch.Tensor], torch.Tensor]) -> Parts:
    """All elements of a pool."""
    return Parts(mark(lengths.cumsum(0) - lengths), mark(lengths), pool, are_all=True)


def _behind_each_other(rows: torch.Tensor, axis: int) -> torch.Tensor:
    return rows.movedim(axis + 1, 1).flatten(0, 1)


def _of_rows(rows: torch.Tensor, axis: int) -> torch.Tensor:
    size: Any = rows.shape[axis + 1]
    return torch.scalar_tensor(size, dtype=torch.int64).expand(rows.shape[0])


def as_elements(tree: Any) -> Any:
    """A tree in which what stands for one element of a pool is that element."""
    return pytree.tree_map(
        lambda leaf: leaf.element() if isinstance(leaf, Parts) and leaf.is_one else leaf,
        tree,
        is_leaf=lambda item: isinstance(item, Parts),
    )


def pools_of(tree: object) -> list[torch.Tensor]:
    """The tensors that hold elements of a tree, which are no leaves of it."""
    leaves = pytree.tree_leaves(tree, is_leaf=lambda item: isinstance(item, Parts))
    return [leaf.pool.tensor for leaf in leaves if isinstance(leaf, Parts)]


def through_pools(replace: Callable[[Any], Any], tree: Any) -> Any:
    """A tree with what stands for those tensors in a body."""

    def through(leaf: object) -> Any:
        return Parts(leaf.starts, leaf.lengths, leaf.pool.through(replace)) if isinstance(leaf, Parts) else leaf

    return pytree.tree_map(through, tree, is_leaf=lambda item: isinstance(item, Parts))


def has_parts(tree: object) -> bool:
    """Whether elements of a pool are among the leaves of a tree."""
    return any(isinstance(leaf, Parts) for leaf in pytree.tree_leaves(tree, is_leaf=lambda i: isinstance(i, Parts)))


def _pair(children: Iterable[Any]) -> tuple[Any, Any]:
    starts, lengths = children
    return starts, lengths


pytree.register_pytree_node(
    Parts,
    lambda parts: ([parts.starts, parts.lengths], parts.pool),
    lambda children, pool: Parts(*_pair(children), pool),
    flatten_with_keys_fn=lambda parts: (
        [(pytree.GetAttrKey("starts"), parts.starts), (pytree.GetAttrKey("lengths"), parts.lengths)],
        parts.pool,
    ),
)
