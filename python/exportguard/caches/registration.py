"""Registers classes as pytree nodes so that what was registered before comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch.utils._pytree as pytree

from exportguard import _core
from exportguard.arguments import require_callable, require_kind
from exportguard.errors import GuardError, InvalidArgumentError

Leaves = list[Any]
Context = Any


@dataclass(frozen=True, kw_only=True)
class Serializer:
    """How the objects of one class become a list of leaves and a context, and come back.

    :param flatten: object -> (leaves, context); the context is plain JSON data, equal for objects of one kind
    :param unflatten: (leaves, context) -> object; the leaves may be anything that a tree can hold
    :param keys: object -> the name of each leaf, for key paths; left out: its position
    :param to_json, from_json: for a context that is not JSON data
    """

    flatten: Callable[[Any], tuple[Leaves, Context]]
    unflatten: Callable[[Iterable[Any], Context], Any]
    keys: Callable[[Any], list[str]] | None = None
    to_json: Callable[[Context], Any] | None = None
    from_json: Callable[[Any], Context] | None = None

    def flatten_with_keys(self, value: Any) -> tuple[list[tuple[Any, Any]], Context]:
        """As `flatten`, each leaf with its key."""
        leaves, context = self.flatten(value)
        if self.keys is None:
            return [(pytree.SequenceKey(i), leaf) for i, leaf in enumerate(leaves)], context
        # torch.export makes code of key paths; only as the key of an item may a name hold a dot.
        names: list[pytree.MappingKey[str, Any]] = [pytree.MappingKey(name) for name in self.keys(value)]
        return list(zip(names, leaves, strict=True)), context


def named_serializer(
    flatten: Callable[[Any], tuple[dict[str, Any], Context]], unflatten: Callable[[Iterable[Any], Context], Any]
) -> Serializer:
    """A serializer from a `flatten` that gives the leaves by name."""

    def without_names(value: Any) -> tuple[Leaves, Context]:
        leaves, context = flatten(value)
        return list(leaves.values()), context

    def names(value: Any) -> list[str]:
        return list(flatten(value)[0])

    return Serializer(flatten=without_names, unflatten=unflatten, keys=names)


def class_name(cls: type) -> str:
    """The name under which torch.export.save writes the class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def register(changes: _core.Changes, cls: type, serializer: Serializer) -> None:
    """Registers `cls` with both pytree implementations of torch, for as long as the changes stay."""
    _register_python(changes, cls, serializer)
    if getattr(pytree, "_cxx_pytree_exists", False):
        _register_optree(changes, cls, serializer)


def _register_python(changes: _core.Changes, cls: type, serializer: Serializer) -> None:
    name = class_name(cls)
    node = pytree.NodeDef(cls, serializer.flatten, serializer.unflatten, serializer.flatten_with_keys)
    written = pytree._SerializeNodeDef(cls, name, serializer.to_json, serializer.from_json)
    changes.set_item(pytree.SUPPORTED_NODES, cls, node)
    changes.set_item(pytree.SUPPORTED_SERIALIZED_TYPES, cls, written)
    changes.set_item(pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE, name, cls)


def _register_optree(changes: _core.Changes, cls: type, serializer: Serializer) -> None:
    arguments = (cls, serializer.flatten, serializer.unflatten)
    if not pytree._cxx_pytree_imported:
        _register_pending(changes, arguments, class_name(cls))
        return
    import optree
    import torch.utils._cxx_pytree as cxx_pytree

    before = _OptreeRegistration(optree, cls)
    changes.call(before.remove, before.put_back, f"optree registration of {cls.__name__}")
    changes.call(
        lambda: cxx_pytree._private_register_pytree_node(*arguments, serialized_type_name=class_name(cls)),
        lambda: optree.unregister_pytree_node(cls, namespace="torch"),
        f"optree registration of {cls.__name__}",
    )


def _register_pending(changes: _core.Changes, arguments: tuple[Any, ...], name: str) -> None:
    """torch registers these once its optree module is imported; later entries replace earlier ones."""
    pending = pytree._cxx_pytree_pending_imports
    before = [entry for entry in pending if entry[0][0] is arguments[0]]
    added = (arguments, {"serialized_type_name": name})

    def apply() -> None:
        pending[:] = [entry for entry in pending if entry not in before] + [added]

    def undo() -> None:
        pending[:] = [entry for entry in pending if entry is not added] + before

    changes.call(apply, undo, f"optree registration of {name}")


class _OptreeRegistration:
    """What optree knows of a class in torch's namespace, to be put back."""

    def __init__(self, optree: Any, cls: type) -> None:
        self._optree = optree
        self._cls = cls
        self._entry: Any = None

    def remove(self) -> None:
        registered = self._optree.register_pytree_node.get(self._cls, namespace="torch")
        if registered is not None and registered.namespace == "torch":
            self._entry = self._optree.unregister_pytree_node(self._cls, namespace="torch")

    def put_back(self) -> None:
        if self._entry is not None:
            entry = self._entry
            self._optree.register_pytree_node(
                self._cls, entry.flatten_func, entry.unflatten_func, namespace=entry.namespace
            )


_OPTIONS = ("keys", "to_json", "from_json")

_kept: dict[type, _core.KeptChanges] = {}
_kept_lock = threading.Lock()


def register_class_serialization(
    cls: type,
    flatten: Callable[[Any], tuple[Leaves, Context]],
    unflatten: Callable[[Iterable[Any], Context], Any],
    **options: Any,
) -> None:
    """Registers a class of your own, until `unregister_class_serialization`; inside a guard and outside.

    :param options: `keys`, `to_json`, `from_json` as in `Serializer`
    :raises GuardError: if this function registered it already

    >>> class Pair:
    ...     def __init__(self, first, second):
    ...         self.first, self.second = first, second
    >>> register_class_serialization(Pair, lambda p: ([p.first, p.second], None), lambda leaves, _: Pair(*leaves))
    >>> pytree.tree_leaves(Pair(1, 2))
    [1, 2]
    >>> unregister_class_serialization(Pair)
    """
    require_kind("cls", cls, type, "a class")
    require_callable("flatten", flatten)
    require_callable("unflatten", unflatten)
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise InvalidArgumentError(f"register_class_serialization does not take {', '.join(unknown)}, but {_OPTIONS}")
    for name, value in options.items():
        if value is not None:
            require_callable(name, value)
    keep(cls, Serializer(flatten=flatten, unflatten=unflatten, **options))


def keep(cls: type, serializer: Serializer) -> None:
    """Registers `cls` outside a guard."""
    with _kept_lock:
        if cls in _kept:
            raise GuardError(f"{class_name(cls)} is registered already; call unregister_class_serialization first")
        changes = _core.KeptChanges()
        register(changes, cls, serializer)
        _kept[cls] = changes


def is_kept(cls: type) -> bool:
    """Whether `register_class_serialization` registered it."""
    return cls in _kept


def unregister_class_serialization(cls: type) -> None:
    """Undoes `register_class_serialization`; what was registered before comes back.

    :raises GuardError: if that function did not register it
    """
    require_kind("cls", cls, type, "a class")
    with _kept_lock:
        changes = _kept.pop(cls, None)
    if changes is None:
        raise GuardError(f"{class_name(cls)} was not registered with register_class_serialization")
    changes.undo()
