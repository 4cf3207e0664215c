"""Python numbers that a graph holds as tensors: they compute as Python's numbers do.

A number of a loop or of a branch becomes a tensor of rank 0, int64 or float64 (bool for truth values), and is marked.
Arithmetic of numbers alone gives a number again, with Python's rules: `/` gives a float, truth values count as 0 and 1.
With a tensor it decides the dtype of the result no more than a Python number would: it is cast to the tensor's dtype,
or to the default one if its kind is higher. Integers beyond 64 bits do not fit.

A number may be of one kind on one path and of another on the other: `k = 2` or `k = 0.5`, `k = 1` or `k = x.mean()`. It
is then known with all the kinds that it may be of. As long as they lead to one dtype nothing is lost by the widest of
them; where they do not, as beside a tensor of integers, no graph can hold the result and it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols, statically_known_true

from exportguard.rewrites.argument_leaves import leaves_of, mapped, tensors_of
from exportguard.rewrites.broadcasting import note_shape, require_shapes, source_of, spread
from exportguard.rewrites.extremes import is_of_two_kinds
from exportguard.rewrites.places import line_now
from exportguard.rewrites.raising import require_divisor_uncaught
from exportguard.source.errors import RewriteError

_NOT_NEGATIVE = "exportguard_number_not_negative"
_MARK = "exportguard_number"
_KINDS = "exportguard_number_kinds"
_BOOL, _INT, _FLOAT = range(3)  # the kinds of Python numbers
_OF_KIND = {_BOOL: True, _INT: 1, _FLOAT: 1.0}
_KIND_NAMES = {_BOOL: "bool", _INT: "int", _FLOAT: "float"}
_DIVISIONS = frozenset(("div", "true_divide", "__rdiv__", "__rtruediv__", "__truediv__"))
_REMAINDERS = frozenset(("floor_divide", "remainder", "fmod", "__floordiv__", "__mod__", "__rfloordiv__", "__rmod__"))
_POWERS = frozenset(("pow", "__pow__", "__rpow__"))
_BITWISE = frozenset(
    (
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift"),
        *("__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "__invert__"),
        *("__rand__", "__ror__", "__rxor__", "__rlshift__", "__rrshift__"),
    )
)
_ARITHMETIC = (
    _DIVISIONS
    | _BITWISE
    | frozenset(
        (
            *("add", "sub", "mul", "floor_divide", "remainder", "pow", "neg", "abs", "rsub", "fmod", "positive"),
            *("__add__", "__sub__", "__mul__", "__floordiv__", "__mod__", "__pow__", "__neg__", "__abs__", "__pos__"),
            *("__radd__", "__rsub__", "__rmul__", "__rfloordiv__", "__rmod__", "__rpow__", "maximum", "minimum"),
        )
    )
)
_COMPARISONS = frozenset(
    ("eq", "ne", "lt", "le", "gt", "ge", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
)
_WITH_TENSORS = ("where", "clamp", "clamp_min", "clamp_max", "lerp", "addcmul", "xlogy", "atan2")
MIXED = _ARITHMETIC | _COMPARISONS | frozenset(_WITH_TENSORS)
_IN_PLACE = {f"{name}_": name for name in ("add", "sub", "mul", "div", "pow", "remainder", "floor_divide")} | {
    f"__i{name}__": f"__{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
}
_DECIDING = ("full", "as_tensor", "tensor", "arange", "range")  # make a dtype from a number
_OF_ONE_NUMBER = ("as_tensor", "tensor")


@dataclass(frozen=True)
class Affine:
    """A number as a loop's own number plus a constant, with the bounds of the former: sizes, or None.

    `is_counted` if it is `low` in the first step, and one more in each further one.
    """

    root: object
    offset: int = 0
    low: Any = None
    high: Any = None
    is_counted: bool = False


def as_number(tensor: torch.Tensor, affine: Affine | None = None, kinds: frozenset[int] = frozenset()) -> torch.Tensor:
    """Marks a tensor that stands for a Python number, of one of several kinds if there is more than one."""
    setattr(tensor, _MARK, affine or Affine(object()))
    return may_be(tensor, kinds) if len(kinds) > 1 else tensor


def full_like(tensor: torch.Tensor, number: float) -> torch.Tensor:
    """A tensor like another one of one number, which stands for a number of Python's if that does."""
    made = torch.full_like(tensor, number)
    return as_number(made) if is_number(tensor) else made


def as_not_negative(tensor: torch.Tensor) -> torch.Tensor:
    """Marks a number that is 0 or more for all sizes, as the logarithm of one."""
    setattr(tensor, _NOT_NEGATIVE, True)
    return tensor


def is_not_negative(tensor: torch.Tensor) -> bool:
    """Whether a number is known to be 0 or more."""
    return getattr(tensor, _NOT_NEGATIVE, False)


def may_be(tensor: torch.Tensor, kinds: frozenset[int], source: str = "") -> torch.Tensor:
    """Marks a tensor that on some path is a Python number of one of these kinds.

    :param source: which number, if the tensor has axes all the same
    """
    if kinds and (source or not tensor.dim()):
        setattr(tensor, _KINDS, kinds)
        spread(tensor, source)
    return tensor


def kinds_of(item: object) -> frozenset[int]:
    """The kinds of Python numbers that something may be: none for what is a tensor on every path."""
    if isinstance(item, torch.Tensor):
        marked: frozenset[int] | None = getattr(item, _KINDS, None)
        if marked is not None:
            return marked
        return frozenset((_rank(item.dtype),)) if is_number(item) else frozenset()
    if isinstance(item, bool | torch.SymBool):
        return frozenset((_BOOL,))
    if is_of_two_kinds(item):
        return frozenset((_INT, _FLOAT))
    return frozenset((_FLOAT if isinstance(item, float | torch.SymFloat) else _INT,))


def is_number(item: object) -> bool:
    """Whether a value is a tensor that stands for a Python number."""
    return isinstance(item, torch.Tensor) and hasattr(item, _MARK)


def marked_like(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Marks a tensor as a number where another one is."""
    for mark in (_MARK, _KINDS):
        if hasattr(other, mark):
            setattr(tensor, mark, getattr(other, mark))
    return tensor


def alternatives_of(item: object) -> Sequence[Any]:
    """What may be there in Python: a number of each kind that it may be of, and the tensor if it may be one."""
    numbers = [_OF_KIND[kind] for kind in sorted(kinds_of(item))]
    is_tensor = isinstance(item, torch.Tensor) and not is_number(item)
    return [*numbers, item] if is_tensor else numbers


def require_one_kind(item: object, what: str) -> None:
    """Refuses a number that may be of several kinds.

    :param what: what needs to know its kind
    """
    if isinstance(item, torch.Tensor | torch.SymFloat) and len(kinds_of(item)) > 1:
        raise RewriteError(
            f"{line_now()}: a number that is {_names(item)}, by the path that it came by, cannot {what}: give it one "
            "kind on every path (`2.0` instead of `2`)"
        )


def affine_of(item: object) -> Affine | None:
    """What is known of a number of a loop."""
    return getattr(item, _MARK, None) if isinstance(item, torch.Tensor) else None


def number_tensor(number: Any) -> torch.Tensor:
    """A Python or symbolic number as the tensor that stands for it."""
    if isinstance(number, torch.Tensor):
        return number
    dtype = torch.bool if isinstance(number, bool | torch.SymBool) else torch.int64
    if isinstance(number, float | torch.SymFloat):
        dtype = torch.float64
    if isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool):
        return torch.scalar_tensor(number, dtype=dtype)  # type: ignore[arg-type]
    return torch.full((), number, dtype=dtype)


def with_numbers(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Calls a torch function whose arguments may be numbers.

    :raises RewriteError: the dtype of the result depends on the path that a number came by
    """
    name = getattr(func, "__name__", "")
    if name == "pad" and _fills_with_data(*args, **kwargs):
        return _padded(*args, **kwargs)
    if name not in MIXED and name not in _IN_PLACE:
        require_shapes(leaves_of((args, kwargs)))
        if name in _DECIDING and kwargs.get("dtype") is None:
            for leaf in leaves_of((args, kwargs)):
                require_one_kind(leaf, f"decide the dtype of torch.{name}")
                if name == "full" and isinstance(leaf, torch.Tensor) and len(alternatives_of(leaf)) > 1:
                    raise RewriteError(
                        f"{line_now()}: a number that is {_names(leaf)} cannot decide the dtype of torch.full"
                    )
        is_made_of_one = name in _OF_ONE_NUMBER and args and is_number(args[0])
        return _made_of_a_number(args[0], *args[1:], **kwargs) if is_made_of_one else func(*args, **kwargs)
    args = tuple(_of_data(argument) for argument in args)
    leaves = tensors_of((args, kwargs))
    if not any(is_number(leaf) or hasattr(leaf, _KINDS) for leaf in leaves):
        return func(*args, **kwargs)
    if name in _IN_PLACE and is_number(args[0]):  # `n += 1` of a number makes another number
        name = _IN_PLACE[name]
        func = getattr(torch.Tensor, name)
    others = [leaf for leaf in leaves if not is_number(leaf)]
    if others:
        _require_one_dtype(leaves)
        args, kwargs = mapped(lambda leaf: _beside(leaf, others), (args, kwargs))
        operands = tensors_of((args, kwargs))
        result = func(*args, **kwargs)
        if name in _ARITHMETIC and isinstance(result, torch.Tensor) and all(map(kinds_of, leaves)):
            return may_be(result, _made_kinds(name, args), next(filter(None, map(source_of, leaves)), ""))
        note_shape(result, operands)
        return result
    if name in _COMPARISONS:
        truth = func(*args, **kwargs)
        return truth if truth is NotImplemented else as_number(truth)  # beside None: Python answers itself
    return _arithmetic(name, func, args, kwargs) if name in _ARITHMETIC else func(*args, **kwargs)


def _of_data(argument: object) -> Any:
    """A truth value of sizes that data gives as a number: beside a tensor torch wants to know which it is."""
    is_open = isinstance(argument, torch.SymBool) and has_free_unbacked_symbols(argument)
    return as_number(number_tensor(argument)) if is_open else argument


def _made_of_a_number(
    number: torch.Tensor, dtype: torch.dtype | None = None, device: Any = None, *, requires_grad: bool = False, **_: Any
) -> torch.Tensor:
    """`torch.tensor(number)`, which is no number: a float has the default dtype then, as one of Python's."""
    own = torch.get_default_dtype() if number.is_floating_point() else number.dtype
    made = number.detach().clone().to(device=device, dtype=dtype or own)
    return made.requires_grad_() if requires_grad else made


# ---------------------------------------------------------------------------------------------------- kinds


def _require_one_dtype(leaves: Sequence[torch.Tensor]) -> None:
    """Refuses numbers whose kinds make different dtypes beside the other operands."""
    for place, leaf in enumerate(leaves):
        own = alternatives_of(leaf)
        if len(own) == 1:
            continue
        for other in [*leaves[:place], *leaves[place + 1 :]]:
            for beside in alternatives_of(other):
                if isinstance(beside, torch.Tensor) and len({_result_type(beside, number) for number in own}) > 1:
                    raise _of_two_dtypes(leaf, beside)


def _result_type(tensor: torch.Tensor, other: object) -> torch.dtype:
    """torch.result_type, which a trace would take for an operator: axes decide before numbers of rank 0, and these
    before Python's; each only within its category."""
    if not isinstance(other, torch.Tensor):
        kind = next(iter(kinds_of(other)))
        made = torch.get_default_dtype() if kind == _FLOAT else torch.int64
        return made if kind > _rank(tensor.dtype) else tensor.dtype
    if bool(tensor.dim()) == bool(other.dim()):
        return torch.promote_types(tensor.dtype, other.dtype)
    first, second = (tensor, other) if tensor.dim() else (other, tensor)
    is_higher = _rank(second.dtype) > _rank(first.dtype)
    return torch.promote_types(first.dtype, second.dtype) if is_higher else first.dtype


def _of_two_dtypes(leaf: torch.Tensor, other: torch.Tensor) -> RewriteError:
    dtypes = sorted(str(_result_type(other, alternative)) for alternative in alternatives_of(leaf))
    return RewriteError(
        f"{line_now()}: a number that is {_names(leaf)}, by the path that it came by, meets a {other.dtype} tensor: "
        f"the result is {' or '.join(dict.fromkeys(dtypes))} in Python, and a graph has one dtype; give the number one "
        "kind on every path (`2.0` instead of `2`), or convert the tensor, or the number by float(…)"
    )


def _fills_with_data(x: object, pad: object = (), mode: str = "constant", value: object = None, **_: object) -> bool:
    """Whether `F.pad` is given a number of tensor data, whose value torch would ask for."""
    is_symbol = isinstance(value, torch.SymInt | torch.SymFloat) and has_free_unbacked_symbols(value)
    return isinstance(x, torch.Tensor) and mode == "constant" and (is_symbol or isinstance(value, torch.Tensor))


def _padded(x: torch.Tensor, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> torch.Tensor:
    """`F.pad` with a number of tensor data: it stands where a tensor of ones has no one once it is padded so."""
    number = number_tensor(value)
    if number.is_floating_point() and not x.is_floating_point():
        raise RewriteError(
            f"{line_now()}: F.pad fills a tensor of integers with a float of tensor data; give it an int: int(…)"
        )
    is_there = torch.nn.functional.pad(torch.ones_like(x), pad) != 0
    return torch.where(is_there, torch.nn.functional.pad(x, pad), number.to(x.dtype))


def _names(leaf: torch.Tensor | torch.SymFloat) -> str:
    names = [_KIND_NAMES[kind] for kind in sorted(kinds_of(leaf))]
    is_tensor = isinstance(leaf, torch.Tensor) and not is_number(leaf)
    return " or ".join([*names, "a tensor"] if is_tensor else names)


def _made_kinds(name: str, args: Any) -> frozenset[int]:
    """The kinds of what arithmetic makes of numbers, by those of the operands."""
    operands = [kinds_of(a) for a in args if isinstance(a, torch.Tensor | bool | int | float | torch.SymInt)]
    if name in _DIVISIONS:
        return frozenset((_FLOAT,))
    highest = {_BOOL}
    for kinds in operands:
        highest = {max(known, kind) for known in highest for kind in kinds}
    if name in _BITWISE and name not in ("__invert__", "bitwise_not"):
        return frozenset(highest)
    made = {max(kind, _INT) for kind in highest}
    if name in _POWERS and _INT in made and not _is_natural(_exponent(name, args)):
        made |= {_FLOAT}
    return frozenset(made)


def _exponent(name: str, args: Any) -> Any:
    return args[0] if name == "__rpow__" else args[1] if len(args) > 1 else None


def surely(test: Callable[[], Any]) -> bool:
    """Whether a test of what a number of a loop may be is true at all sizes. Nothing of it is recorded: in a body torch
    2.11 to 2.13 records no sums with a size from outside of it that is a product, as `7 * n`."""
    with disable_proxy_modes_tracing():
        return bool(statically_known_true(test()))


def _is_natural(exponent: object) -> bool:
    """Whether a power of integers is surely one: Python's `2 ** -1` is a float."""
    if isinstance(exponent, torch.Tensor):
        known = affine_of(exponent)
        return known is not None and known.low is not None and surely(lambda: known.low + known.offset >= 0)
    return isinstance(exponent, int) and exponent >= 0


def _arithmetic(name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    if name in _DIVISIONS | _REMAINDERS and args[1:]:
        require_divisor_uncaught(args[0 if name.startswith("__r") else 1])
    affine = _moved(name, args)
    kinds = _made_kinds(name, args)
    is_wide = name in _DIVISIONS or (name in _POWERS and _FLOAT in kinds)
    keeps_flags = kinds == {_BOOL}
    args, kwargs = mapped(lambda leaf: leaf if keeps_flags else _operand(leaf, is_wide), (args, kwargs))
    result = func(*args, **kwargs)
    return as_number(result, affine, kinds) if isinstance(result, torch.Tensor) else result


def _operand(leaf: object, divides: bool) -> Any:
    """A number as Python's arithmetic takes it."""
    if isinstance(leaf, float) or (divides and isinstance(leaf, int)):
        return torch.full((), leaf, dtype=torch.float64)
    if isinstance(leaf, bool):
        return int(leaf)
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if divides and not leaf.is_floating_point():
        return leaf.to(torch.float64)
    return leaf.to(torch.int64) if leaf.dtype == torch.bool else leaf


def _moved(name: str, args: Any) -> Affine | None:
    """What is known of `i + 3`, `3 + i` and `i - 3`."""
    if len(args) != 2:
        return None
    first, second = args
    if name in ("add", "__add__", "__radd__") and isinstance(first, int):
        first, second = second, first
    known = affine_of(first)
    if known is None or not isinstance(second, int) or isinstance(second, bool):
        return None
    if name in ("add", "__add__", "__radd__"):
        return Affine(known.root, known.offset + second, known.low, known.high)
    return Affine(known.root, known.offset - second, known.low, known.high) if name in ("sub", "__sub__") else None


def _rank(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == torch.bool else 1


def _beside(leaf: Any, others: list[torch.Tensor]) -> Any:
    """A number with the dtype that it has beside tensors."""
    if not is_number(leaf):
        return leaf
    dtype = others[0].dtype
    for other in others[1:]:
        dtype = torch.promote_types(dtype, other.dtype)
    if _rank(leaf.dtype) > _rank(dtype):
        dtype = torch.get_default_dtype() if leaf.is_floating_point() else torch.int64
    return leaf if leaf.dtype == dtype else leaf.to(dtype)
