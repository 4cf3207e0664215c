"""Which tensors a branch reads and writes, found by running it once with proxy tracing off.

A higher-order operator of torch takes everything that its bodies read as explicit operands. A branch written by a user
is a closure: it reads parameters, attributes, enclosing variables. `record` runs such a closure on fake tensors and
returns what it captured; `substituted` runs it again with the operands in the places of what was captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, get_proxy_mode
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols
from torch.overrides import TorchFunctionMode

from exportguard.rewrites.aliases import only_looks
from exportguard.rewrites.argument_leaves import leaves_of, mapped, tensors_of
from exportguard.rewrites.collected import Grown
from exportguard.rewrites.contents import Bookkeeping
from exportguard.rewrites.numbers import marked_like
from exportguard.rewrites.packed_rows import pools_of, through_pools
from exportguard.size_facts import ending_facts
from exportguard.source.errors import RewriteError


@dataclass(kw_only=True)
class Captured(Bookkeeping):
    """Tensors that a closure reads but does not make, in the order of their first use, and which of them it writes."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    numbers: dict[Any, torch.SymInt] = field(default_factory=dict)  # from tensor data, by what they stand for
    own_symbols: set[Any] = field(default_factory=set)  # of numbers and sizes that the closure makes from tensor data
    outer_symbols: set[Any] = field(default_factory=set)  # of those that it is given
    sizes: dict[Any, torch.SymInt] = field(default_factory=dict)  # of inputs, by symbol, with a number that has it
    ids: set[int] = field(default_factory=set)
    writes: bool = False  # whether any tensor is changed in place
    may_fail: bool = False  # whether tensor data decides if a function fails, as an index out of bounds does
    origin: dict[int, int] = field(default_factory=dict)  # of views, the captured tensor that they are of
    writers: dict[int, int] = field(default_factory=dict)  # by storage, under whose name it changes
    _written_now: dict[int, int] = field(default_factory=dict)  # the same, of the branch that runs
    made: dict[int, torch.Tensor] = field(default_factory=dict)  # by the closure; held, so that no id is used twice

    def add_number(self, number: torch.SymInt) -> None:
        symbols = _symbols(number)
        for symbol in free_symbols(number) - free_unbacked_symbols(number):
            if symbol == number.node.expr:  # a tracer may know the size itself, and no number that is made of its name
                self.sizes[symbol] = number
            self.sizes.setdefault(symbol, number)
        if symbols and not symbols & self.own_symbols:
            self.outer_symbols |= symbols
            self.numbers.setdefault(number.node.expr, number)

    def known_numbers(self) -> list[torch.SymInt]:
        """The numbers that the program around the closure has, or what it has of them: the closure makes the others."""
        mode = get_proxy_mode()
        if mode is None:
            return [*self.numbers.values()]
        # torch 2.11 to 2.13: what a tracer knows by itself, and what by the expression that it stands for.
        tracer: Any = mode.tracer
        found: dict[Any, torch.SymInt] = {}
        for expression, number in self.numbers.items():
            is_known = tracer.symnode_tracker.get(number) is not None or expression in tracer.sympy_expr_tracker
            parts = (_of_symbol(s, number) for s in sorted(free_unbacked_symbols(number), key=str))
            for part in (number,) if is_known else parts:
                if is_known or part.node.expr in tracer.sympy_expr_tracker:
                    found.setdefault(part.node.expr, part)
        return [*found.values()]

    def add(self, tensor: torch.Tensor) -> None:
        if id(tensor) in self.ids or id(tensor) in self.made:
            return
        self.ids.add(id(tensor))
        self.outer_symbols |= _symbols(tensor)
        self.tensors.append(tensor)
        self.origin[id(tensor)] = id(tensor)

    def add_sizes(self, others: Iterable[object]) -> None:
        """Captures a tensor of each size that the closure reads as a number: a body knows the sizes of its operands.

        :param others: operands beside those that are captured
        """
        tensors = [leaf for leaf in (*self.tensors, *others) if isinstance(leaf, torch.Tensor)]
        sizes: list[Any] = [size for tensor in tensors for size in tensor.shape]
        known = {size.node.expr for size in sizes if isinstance(size, torch.SymInt)}  # `n` does not come with `n + 1`
        for symbol, number in sorted(self.sizes.items(), key=lambda item: str(item[0])):
            if symbol not in known:
                self.add(_of_size(symbol, number))

    def mark_written(self) -> list[bool]:
        """For each captured tensor whether its content is changed under its name."""
        places = set(self.writers.values())
        return [id(tensor) in places for tensor in self.tensors]

    def of_the_next_step(self) -> Captured:
        """A new one, that knows what the step before has written."""
        following = Captured()
        following.writers = dict(self.writers)
        following._written_now = dict(self._written_now)
        return following

    # ---------------------------------------------------------------------------------- two operands of one storage

    def begin_of_a_branch(self) -> None:
        """Another branch begins where the first began: what that wrote is not written yet."""
        self._written_now.clear()

    def read(self, tensors: Iterable[torch.Tensor]) -> None:
        """Refuses a captured tensor whose memory was changed under the name of another captured tensor."""
        if not self._written_now:
            return
        for tensor in tensors:
            writer = self._written_now.get(_storage(tensor))
            own = self.origin.get(id(tensor))
            if writer is not None and own is not None and own != writer:
                raise _of_two_names()

    def hand_on(self, leaves: Iterable[object]) -> None:
        """Refuses what a body hands on, if its memory was changed under the name of another captured tensor.

        It may be a tensor from outside that no function has seen, as `w` in `v += 1; v = w` behind `w = v[:]`.
        """
        for leaf in leaves if self._written_now else ():
            if isinstance(leaf, torch.Tensor):
                writer = self._written_now.get(_storage(leaf))
                own = self.origin.get(id(leaf), None if id(leaf) in self.made else id(leaf))
                if writer is not None and own is not None and own != writer:
                    raise _of_two_names()

    def write(self, tensor: torch.Tensor) -> None:
        """Notes under which captured tensor's name memory is changed."""
        self.writes = True
        own = self.origin.get(id(tensor))
        if own is None:
            return
        storage = _storage(tensor)
        if self.writers.setdefault(storage, own) != own:
            raise _of_two_names()
        self._written_now[storage] = own

    def note_origin(self, made: torch.Tensor, arguments: Iterable[torch.Tensor]) -> None:
        """Follows views to the captured tensor that they are of."""
        for argument in arguments:
            own = self.origin.get(id(argument))
            if own is not None and _storage(argument) == _storage(made):
                self.origin[id(made)] = own
                return


def _of_two_names() -> RewriteError:
    return RewriteError(
        "a body of a test or loop on tensor data changes a tensor in place and reads or changes another one that "
        "shares its memory; a graph takes them as two: use one name, or write `y = y + …` instead of `y += …`"
    )


def _leaves_of(arguments: object) -> Iterator[Any]:
    """The leaves of what a function is given, with the bounds of slices, into which pytree does not look."""
    for leaf in leaves_of(arguments):
        yield from (leaf.start, leaf.stop, leaf.step) if isinstance(leaf, slice) else (leaf,)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _of_size(symbol: Any, number: torch.SymInt) -> torch.Tensor:
    """A tensor without elements that has a size of the inputs."""
    size: Any = number if number.node.expr == symbol else _of_symbol(symbol, number)
    return torch.empty((size, 0))


def _of_symbol(symbol: Any, number: torch.SymInt) -> torch.SymInt:
    """The number of a symbol out of the expression that another number stands for."""
    node = SymNode(symbol, number.node.shape_env, int, None)  # torch 2.11 to 2.13 find its value
    return torch.SymInt(node)  # type: ignore[no-untyped-call]


def _symbols(item: object) -> set[Any]:
    """What tensor data decides in a number or in the sizes of a tensor."""
    sizes = item.shape if isinstance(item, torch.Tensor) else (item,)
    symbolic = (size for size in sizes if isinstance(size, torch.SymInt | torch.SymFloat))
    return {symbol for size in symbolic for symbol in free_unbacked_symbols(size)}


#: `x.data`, which no trace follows: what is made of it is refused.
_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]


class _Recorder(TorchFunctionMode, Bookkeeping):
    def __init__(self, captured: Captured) -> None:
        super().__init__()
        self._captured = captured

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        captured = self._captured
        leaves = [*_leaves_of((args, kwargs))]
        for argument in (*args, *kwargs.values()):
            if isinstance(argument, Grown):
                argument.note_read()
                leaves += pools_of(argument)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        for tensor in tensors:
            captured.add(tensor)
        for leaf in leaves:
            if isinstance(leaf, torch.SymInt):
                captured.add_number(leaf)
        if only_looks(func, args, kwargs):
            seen = func(*args, **kwargs)
            return seen if func == _DATA else self._noted(seen, tensors)
        captured.read(tensors)
        captured.may_fail |= _may_fail(func, tensors)
        versions = [tensor._version for tensor in tensors]
        result = func(*args, **kwargs)
        changed = [t for t, version in zip(tensors, versions, strict=True) if t._version != version]
        for tensor in _targets(func, args, changed):
            captured.write(tensor)
        return self._noted(result, tensors)

    def _noted(self, result: Any, arguments: Sequence[torch.Tensor]) -> Any:
        """The result, of which every tensor that is new is one that the closure makes."""
        for leaf in leaves_of(result):
            self._note_made(leaf)
            if isinstance(leaf, torch.Tensor) and id(leaf) in self._captured.made:
                self._captured.note_origin(leaf, arguments)
        return result

    def _note_made(self, leaf: object) -> None:
        if isinstance(leaf, torch.Tensor) and id(leaf) not in self._captured.ids:
            self._captured.made[id(leaf)] = leaf
        self._captured.own_symbols |= _symbols(leaf) - self._captured.outer_symbols


_BY_INDEX = ("__getitem__", "index_select", "gather", "take", "take_along_dim", "embedding", "one_hot", "index_put_")
_BY_VALUE = ("item", "inverse", "inv", "linalg_inv", "cholesky", "linalg_cholesky", "solve", "linalg_solve")


_BY_SIZE = ("__getitem__", "select", "amax", "amin", "max", "min", "argmax", "argmin", "median", "aminmax")


def _may_fail(func: object, tensors: Sequence[torch.Tensor]) -> bool:
    name = getattr(func, "__name__", "")
    is_by_size = name in _BY_SIZE and bool(tensors) and bool(_symbols(tensors[0]))  # of what may have no element
    return is_by_size or name in _BY_VALUE or (name in _BY_INDEX and len(tensors) > 1)


def _targets(func: Any, args: Any, changed: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Which of the arguments that share changed memory a function changes: its first one, if that is in place."""
    name = getattr(func, "__name__", "")
    in_place = name.endswith("_") and not (name.endswith("__") and name not in _IN_PLACE)
    return changed[:1] if in_place and args and changed and changed[0] is args[0] else changed


_IN_PLACE = ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ior__", "__iand__", "__ixor__")


class _Substitution(TorchFunctionMode, Bookkeeping):
    """Gives functions the operands; `y += 1`, which returns what it changes, leaves the name with the captured one.

    :param replacements: the operands by the ids of what was captured, which `originals` are, in the same order
    """

    def __init__(self, replacements: dict[int, torch.Tensor], originals: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._replacements = replacements
        self._originals = dict(zip(map(id, replacements.values()), originals, strict=True))

    def replace(self, leaf: object) -> Any:
        return self._replacements.get(id(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (args, kwargs or {})
        has_lists = any(isinstance(argument, Grown) for argument in (*args, *given[1].values()))
        args, kwargs = mapped(self.replace, through_pools(self.replace, given) if has_lists else given)
        result = func(*args, **kwargs)
        return self._originals.get(id(result), result) if isinstance(result, torch.Tensor) else result


def record(function: Callable[[], Any], captured: Captured) -> Any:
    """Runs `function` on fake tensors without leaving a trace in the graph; returns what it returns."""
    mode = _body(_Recorder(captured))
    with ending_facts(), disable_proxy_modes_tracing(), _ignored_symbols(), _unrecorded_buffers(), mode:
        return function()


@contextmanager
def _unrecorded_buffers() -> Iterator[None]:
    """torch notes the buffers that a model registers while it is traced; one that a body registers comes out of it."""
    hooks = torch.nn.modules.module._global_buffer_registration_hooks
    torchs = {key: hook for key, hook in hooks.items() if getattr(hook, "__module__", "").startswith("torch.")}
    for key in torchs:
        del hooks[key]
    try:
        yield
    finally:
        hooks.update(torchs)


def _ignored_symbols() -> AbstractContextManager[Any]:
    """Sizes and numbers from tensor data get symbols in every run; those of this one appear nowhere."""
    mode = torch._guards.detect_fake_mode()
    env = mode.shape_env if mode is not None else None
    return nullcontext() if env is None else env.ignore_fresh_unbacked_symbols()


@contextmanager
def substituted(captured: list[torch.Tensor], operands: list[torch.Tensor]) -> Iterator[Callable[[Any], Any]]:
    """While open, every torch function sees `operands` where it is given `captured`. Yields the same for a pytree."""
    mode = _Substitution({id(c): marked_like(o, c) for c, o in zip(captured, operands, strict=True)}, captured)
    with _body(mode), _unrecorded_buffers():
        yield lambda tree: mapped(mode.replace, tree)


_BODIES: list[TorchFunctionMode] = []  # torch's own stack has none of those that see the function which runs


@contextmanager
def _body(mode: TorchFunctionMode) -> Iterator[None]:
    """A run of a body, under its mode."""
    _BODIES.append(mode)
    try:
        with mode:
            yield
    finally:
        _BODIES.pop()


def bodies_now() -> list[TorchFunctionMode]:
    """The runs of bodies of branches and loops that are under way, the outermost first."""
    return [*_BODIES]


def versions_of(items: object) -> list[int]:
    """How often each of some tensors was written into."""
    return [tensor._version for tensor in tensors_of(items)]
