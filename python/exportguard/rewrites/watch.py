"""Watches an export in which rewritten functions run: what a handler of the model must not swallow, numbers that are
tensors, and names that share memory in Python and not in the graph."""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import HigherOrderOperator
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode

from exportguard.export_errors import stops
from exportguard.rewrites.aliases import Aliases, followed, only_looks
from exportguard.rewrites.answers import truth_of_tensors
from exportguard.rewrites.argument_leaves import tensors_of
from exportguard.rewrites.broadcasting import require_axes
from exportguard.rewrites.catching import handler_of
from exportguard.rewrites.collected import holds_parts, is_open, require_closed
from exportguard.rewrites.joining import of_open_list
from exportguard.rewrites.narrowing import narrowed
from exportguard.rewrites.numbers import with_numbers
from exportguard.rewrites.packed_rows import with_packed_lists
from exportguard.rewrites.raising import require_content_uncaught
from exportguard.rewrites.resizing import brought_together
from exportguard.rewrites.size_keys import remove_entries
from exportguard.rewrites.state import Slot, Snapshot
from exportguard.source.errors import RewriteError, noted_errors

if TYPE_CHECKING:
    from exportguard._core import Changes

_WATCHED = "__exportguard_watched__"
_OPEN: list[Watch] = []


class Watch(TorchFunctionMode):
    """Sees every torch function that runs while a program is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.aliases = Aliases()
        self.containers: list[_Two] = []
        self.put: list[tuple[Slot, Any]] = []  # where a body left something, with what was there before
        self.swallowed: list[Exception] = []  # what torch raised where a handler of the model may take it for its own

    def __torch_function__(self, func: Callable[..., Any], classes: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        try:
            if isinstance(func, HigherOrderOperator):
                # torch.cond and torch.while_loop have Dynamo capture the bodies that a model gives them, this mode with
                # them (torch 2.11 to 2.13): there a body is not to be put under it once more.
                is_captured = torch.compiler.is_dynamo_compiling()
                return func(*(args if is_captured else [self._watched(argument) for argument in args]), **kwargs)
            if any(is_open(argument) for argument in (*args, *kwargs.values())):
                self.aliases.read(tensors_of((args, kwargs)))
                return of_open_list(func, args, kwargs)
            return self._called(func, args, kwargs)
        except Exception as error:
            self.note_stop(error)
            raise

    def _called(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Calls a torch function that may read stale memory, or make some stale."""
        if only_looks(func, args, kwargs):
            return func(*args, **kwargs)
        tensors = tensors_of((args, kwargs))
        self.aliases.read(tensors)
        require_content_uncaught(func, args, kwargs)
        versions = [tensor._version for tensor in tensors]
        answer = truth_of_tensors(func, args, kwargs)
        if answer is not None:
            return answer
        narrow = narrowed(func, args, kwargs)
        result = with_numbers(func, brought_together(func, args), kwargs) if narrow is None else narrow
        for tensor, version in zip(tensors, versions, strict=True):
            if tensor._version != version:
                self.aliases.written(tensor)
        return result

    def _watched(self, argument: object) -> Any:
        """The body of a higher-order operator, which is traced while this mode is not in force."""
        if not isinstance(argument, types.FunctionType):
            return argument

        @functools.wraps(argument)
        def body(*operands: Any) -> Any:
            with self:
                return argument(*operands)

        return body

    def note_stop(self, error: Exception) -> None:
        """Notes an error at a test on tensor data that a handler of the model would take for one of its own."""
        if is_stop(error) and handler_of(type(error)) is not None:
            self.swallowed.append(error)


def is_stop(error: BaseException) -> bool:
    """Whether torch wanted the value of a tensor that it does not have."""
    return isinstance(error, stops()) or any(said in str(error) for said in _SAID_OF_DATA)


#: What Python and torch 2.11 to 2.13 say where the value of a number of tensor data is wanted, as the key of a dict.
_SAID_OF_DATA = (
    "data-dependent",
    "its data is not allocated yet",  # `torch.tensor` of a list of tensors, whose numbers it reads
    "unhashable type: non-nested SymInt",
    "__bool__ should return bool, returned",
    "unsupported operand type(s) for divmod(): 'Sym",
    "not in VR[",  # of the int that is made of a negative number of sizes
    "sympy expression is NaN",  # of a float of tensor data that is compared with an infinite one
)


def note_put(slots: Iterable[Slot], snapshot: Snapshot) -> None:
    """Notes the places that a body changed, in which no tensor of the trace may stay."""
    if _OPEN:
        _OPEN[-1].put += [(slot, snapshot.before(slot)) for slot in slots]


def note_containers(found: Iterable[tuple[str, Any, Any]], line: int) -> None:
    """Notes lists, dicts and objects that Python may have as one behind a test or a loop, but that are two while a
    program is traced."""
    if _OPEN:
        _OPEN[-1].containers += [_Two(name, line, older, merged) for name, older, merged in found]


@contextmanager
def containers_of_attempt() -> Iterator[None]:
    """While open, what is noted of lists, dicts and objects is forgotten if an error ends it: the attempt left none."""
    before = len(_OPEN[-1].containers) if _OPEN else 0
    try:
        yield
    except RewriteError:
        if _OPEN:
            del _OPEN[-1].containers[before:]
        raise


def are_two(item: object, other: object) -> bool:
    """Whether one of two took the place of the other behind a test or a loop, where Python may have them as one."""
    return bool(_OPEN) and any(two.are(item, other) for two in _OPEN[-1].containers)


def pairs_of_two() -> list[tuple[int, int]]:
    """The identities of those two."""
    found = ((two.older(), two.merged) for two in _OPEN[-1].containers) if _OPEN else ()
    return [(id(older), id(merged)) for older, merged in found if older is not None]


class _Two:
    """A list, dict or object from before a test and the one that took its place, with what both held then."""

    def __init__(self, name: str, line: int, older: object, merged: object) -> None:
        self._name = name
        self._line = line
        self.merged = merged
        self._held = _elements(older), _elements(merged)
        self._was_changed = False
        self.older: Callable[[], Any] = lambda: older
        if not isinstance(older, list | dict):  # an object that has another name
            return
        try:
            self.older = weakref.ref(older, lambda _: self._note())
        except TypeError:  # Python's own lists and dicts cannot be watched; they count as being in use to the end
            self.older = lambda: older

    def are(self, item: object, other: object) -> bool:
        """Whether these are the two."""
        older = self.older()
        return any(a is older and b is self.merged for a, b in ((item, other), (other, item)))

    def _note(self) -> None:
        """Whether the new one was changed by now, when nothing refers to the older one any more."""
        self._was_changed |= not _are_same(self._held[1], _elements(self.merged))

    def require_unchanged(self) -> None:
        """Refuses a change of the one while the other is in use."""
        older = self.older()
        if older is not None:
            self._note()
            self._was_changed |= not _are_same(self._held[0], _elements(older))
        if self._was_changed:
            raise RewriteError(
                f"line {self._line}: a test on tensor data, or a loop, gives {self._name} {_kind_of(self.merged)} "
                "from before it, or another one, and one of the two is changed later; no graph can tell which: copy it "
                "in the branch, or before the loop"
            )


def _kind_of(container: object) -> str:
    return "a list or dict" if isinstance(container, list | dict) else f"a {type(container).__name__}"


def _elements(container: Any) -> list[Any]:
    if not isinstance(container, list | dict):
        return [*vars(container).items()]
    return [*container.items()] if isinstance(container, dict) else [*list.__iter__(container)]


def _are_same(before: list[Any], now: list[Any]) -> bool:
    flat = [leaf for item in before for leaf in (item if isinstance(item, tuple) else (item,))]
    current = [leaf for item in now for leaf in (item if isinstance(item, tuple) else (item,))]
    return len(flat) == len(current) and all(a is b for a, b in zip(flat, current, strict=True))


def watch_exports(changes: Changes) -> None:
    """Puts every torch.export under a watch until the changes are undone."""
    from torch._higher_order_ops import scan as scan_function
    from torch.export import _trace
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    scan_module = sys.modules[scan_function.__module__]
    original = _trace._export
    if getattr(original, _WATCHED, False):
        return

    @functools.wraps(original)
    def export(mod: object, *args: Any, **kwargs: Any) -> Any:
        modules = Snapshot(mod.modules() if isinstance(mod, torch.nn.Module) else ())
        return with_packed_lists(
            lambda: _run_watched(mod, lambda: original(mod, *args, **kwargs)),
            lambda: modules.restore(modules.changes()),
        )

    setattr(export, _WATCHED, True)
    changes.set_attribute(_trace, "_export", export)
    # torch 2.11 to 2.13: what a test on a symbolic number raises is made here, outside of any torch function.
    make_error = ShapeEnv._make_data_dependent_error
    changes.set_attribute(scan_module, "first_slice_copy", _like_a_row)
    changes.set_attribute(ShapeEnv, "_make_data_dependent_error", _noting(make_error))


def _like_a_row(rows: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """What the body of a scan is traced with: torch 2.11 to 2.13 take the first row, and ask whether there is one."""
    return rows.new_empty((*rows.shape[:dim], *rows.shape[dim + 1 :]))


def _noting(make_error: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_error)
    def make(*args: Any, **kwargs: Any) -> Any:
        error = make_error(*args, **kwargs)
        if _OPEN:
            _OPEN[-1].note_stop(error)
        return error

    return make


def _run_watched(model: object, export: Callable[[], Any]) -> Any:
    """The program, unless the model swallowed what was not meant for it."""
    watch = Watch()
    _OPEN.append(watch)
    try:
        with noted_errors() as noted, _left_clean(model, watch), followed(watch.aliases), watch:
            program = _not_swallowed(export, noted, watch.swallowed)
    finally:
        _OPEN.pop()
        remove_entries()
        for slot, before in reversed(watch.put):
            if not isinstance(slot.owner, torch.nn.Module) and _is_of_a_trace(slot.held()):
                slot.put(before)
    for error in [*noted, *watch.swallowed]:
        raise error
    return program


def _not_swallowed(export: Callable[[], Any], *stops: list[Any]) -> Any:
    """The program, or what a handler of the model took for its own: torch says then that modules were not left."""
    try:
        return export()
    except Exception as error:
        swallowed = [stop for found in stops for stop in found]
        if swallowed and not isinstance(error, RewriteError) and not is_stop(error):
            raise swallowed[0] from error
        raise


def _is_of_a_trace(value: object) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor) or holds_parts(value)


@contextmanager
def _left_clean(model: object, watch: Watch) -> Iterator[None]:
    """Sees to it that a model returns nothing stale, and keeps no list or number that only the trace knows."""
    snapshot = Snapshot(model.modules() if isinstance(model, torch.nn.Module) else ())

    def clean(module: torch.nn.Module, _: object, outputs: object) -> None:
        if module is not model:
            return
        require_closed(outputs)
        tensors = tensors_of(outputs)
        require_axes(tensors)
        watch.aliases.read(tensors, "the model returns a tensor")
        for name, buffer in model.named_buffers():
            watch.aliases.read([buffer], f"the model leaves a buffer, {name},")
        for two in watch.containers:
            two.require_unchanged()
        snapshot.restore([(slot, value) for slot, value in snapshot.changes() if holds_parts(value)])

    handle = register_module_forward_hook(clean)
    try:
        yield
    finally:
        handle.remove()
