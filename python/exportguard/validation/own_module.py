"""A module of the user's own as a case to validate: its inputs at other sizes come from the example."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..arguments import require_kind, wrong
from ..axes.counts import Counts
from ..axes.resizing import wrapped
from ..axes.whole_numbers import with_numbers_within
from ..dynamic_shapes import DynamicShapes, LeafShape, ends_of, normalise
from ..errors import REFUSALS, InvalidArgumentError, StoppedError
from ..guard import torch_export_patches
from ..inputs import CallInputs
from ..models import BuildOptions, ModelCase, Task
from ..models.input_sets import InputSet
from ..rewrites.state import KeptModule

_TASK = "own module"


@dataclass(frozen=True, kw_only=True)
class ModuleCase(ModelCase):
    """A module with an example of its inputs: `sets` are sizes to compare at, `refused` those that it raises for.

    `moved` has the sizes at which it raises for numbers of the example, and for which of those that lie within shorter
    axes it does not (`with_numbers_within`).
    """

    example: Mapping[str, Any]
    dynamic_shapes: DynamicShapes
    shapes: Sequence[LeafShape]
    sets: Sequence[InputSet] = ()
    refused: Sequence[str] = ()
    moved: Mapping[frozenset[tuple[str, int]], int] = field(default_factory=dict)

    def inputs(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The example with each axis as long as its name says; the same sizes give equal inputs.

        A longer axis of integers has those of the example again and again, so that they stay what the model can look
        up; floating numbers are drawn from those of the example.
        """
        moved = self.moved.get(frozenset(sizes.items()))
        chosen = None if moved is None else next(itertools.islice(self.with_moved_numbers(sizes), moved, None), None)
        return self._inputs(sizes) if chosen is None else chosen

    def with_moved_numbers(self, sizes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
        """The same inputs with positions, or else lengths, within axes that are shorter than the example's."""
        with torch_export_patches(patch=False):
            known, given = CallInputs(kwargs=self.example), CallInputs(kwargs=self._inputs(sizes))
            calls = [dict(call.kwargs) for call in with_numbers_within(given, known)]
        yield from calls

    def _inputs(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        draw = torch.Generator().manual_seed(0)
        with torch_export_patches(patch=False):
            leaves, spec = pytree.tree_flatten(dict(self.example))
            sized = [_sized(*pair, sizes, draw) for pair in zip(leaves, self.shapes, strict=True)]
            Counts.of(self.example, leaves).put(sized)
            result: dict[str, Any] = pytree.tree_unflatten(sized, spec)
        return result


def module_case(module: torch.nn.Module, inputs: object, dynamic_shapes: DynamicShapes) -> ModuleCase:
    """The case for a module; `inputs` is a tuple of arguments or a dictionary of them.

    Raises:
        InvalidArgumentError: `module` is none, or in training mode, or inputs or shapes do not fit it.
    """
    require_kind("module", module, torch.nn.Module, "a torch.nn.Module")
    if module.training:
        raise InvalidArgumentError(
            f"{type(module).__name__} is in training mode, in which it need not give the same twice; call eval() first"
        )
    if not isinstance(inputs, (tuple, list, Mapping)):
        raise wrong("inputs", inputs, "a tuple of arguments, or a dictionary of them by name")
    call = CallInputs.of(module.forward, *(((), inputs) if isinstance(inputs, Mapping) else (inputs, None)))
    named = _by_keyword(module, call)
    with torch_export_patches(patch=False):
        shapes = normalise(CallInputs.of(module.forward, (), named), dynamic_shapes)
    task = Task(name=_TASK, auto_class="", mapping="", inputs="", cached=False, sizes=_sizes(shapes))
    case = ModuleCase(
        name=type(module).__name__,
        model=module,
        task=task,
        example=named,
        dynamic_shapes=dynamic_shapes if isinstance(dynamic_shapes, Mapping) else _named_shapes(named, dynamic_shapes),
        shapes=shapes,
    )
    return _with_sets(case)


def is_program(model: str) -> bool:
    """Whether a model is given as a function in a file.

    >>> is_program("models/mine.py:make_model"), is_program("llama")
    (True, False)
    """
    return model.partition(":")[0].endswith(".py")


def case_of_program(model: str, build: BuildOptions = BuildOptions(), followed: Collection[str] = ()) -> ModuleCase:
    """The case of `path/file.py:function`; the function returns a module, its inputs, and dynamic shapes if any change.
    Of `build` it asks nothing: what is told there is an error, but for the fields that are `followed` by whoever asks.

    Raises:
        InvalidArgumentError: no such file or function, or it raises or returns something else.
    """
    _require_none(model, build, followed)
    path, _, name = model.partition(":")
    file = Path(path)
    if not file.is_file():
        raise InvalidArgumentError(f"there is no file {path}; pass path/file.py:function")
    if not name:
        raise InvalidArgumentError(
            f"{path} may have several models; name the function that makes one, {path}:make_model"
        )
    with _importing_from(file.resolve().parent):
        function = getattr(_module_of(file), name, None)
        if not callable(function):
            raise InvalidArgumentError(f"{path} has no function {name!r}; pass path/file.py:function")
        try:
            made = function()
        except StoppedError:
            raise
        except (Exception, SystemExit) as error:
            raise InvalidArgumentError(f"{model} raises {_told(error, file)}") from error
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise wrong(f"what {model} returns", made, "(module, inputs) or (module, inputs, dynamic_shapes)")
    return module_case(made[0], made[1], made[2] if len(made) == 3 else None)


def _require_none(model: str, build: BuildOptions, followed: Collection[str]) -> None:
    plain = vars(BuildOptions())
    given = [name for name, value in plain.items() if getattr(build, name) != value and name not in followed]
    if given:
        raise InvalidArgumentError(
            f"{model} makes the model itself, so {' and '.join(given)} would change nothing; leave it out, and do it "
            "in the function (model.half(), for example)"
        )


@contextlib.contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """While a file runs as Python runs a program: its folder is the first to import from."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the file took it out itself
            sys.path.remove(str(folder))


def _module_of(file: Path) -> Any:
    """The file's module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InvalidArgumentError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)  # where dataclasses and torch look the module of a class up
    try:
        spec.loader.exec_module(module)
    except StoppedError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(f"{file} cannot be imported: {_told(error, file)}") from error
    return module


def _told(error: BaseException, file: Path) -> str:
    """An error of the user's file, with the line of the file that it came from."""
    path = str(file.absolute())
    lines = [place.lineno for place in traceback.extract_tb(error.__traceback__) if place.filename == path]
    where = f" ({file.name}, line {lines[-1]})" if lines else ""  # a wrong syntax tells its own
    return f"{type(error).__name__}{': ' if str(error) else ''}{error}{where}"


def _by_keyword(module: torch.nn.Module, call: CallInputs) -> dict[str, Any]:
    """The arguments by name."""
    if not call.args:
        return dict(call.kwargs)
    kinds = {parameter.kind for parameter in inspect.signature(module.forward).parameters.values()}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY}:
        raise InvalidArgumentError(
            f"{type(module).__name__}.forward takes arguments by position alone, and inputs of other sizes are passed "
            "by name; wrap it in a module whose forward names them"
        )
    return call.named


def _named_shapes(named: Mapping[str, Any], dynamic_shapes: Any) -> DynamicShapes:
    """What was given by position, by name; its length was checked before."""
    return dict(zip(named, dynamic_shapes, strict=True)) if dynamic_shapes is not None else None


# ---------------------------------------------------------------------------------------------------- sizes


def _label(shape: LeafShape, axis: int) -> str | None:
    """The name of a size: the user's, or one of its own where only a hint asks for change."""
    asked = shape.axes.get(axis)
    if asked is None or isinstance(asked, int) or asked == torch.export.Dim.STATIC:
        return None
    return shape.label(axis) or f"{shape.leaf.name} {axis}"


def _labelled(shapes: Sequence[LeafShape]) -> Iterator[tuple[str, int, Any]]:
    """Each axis that changes by itself, not with another up to a window: its name, its size, and what was asked."""
    for shape in shapes:
        for axis, asked in shape.axes.items():
            label = _label(shape, axis)
            if label is not None and axis not in shape.sliding:
                value = shape.leaf.value
                yield label, value.shape[axis] if isinstance(value, torch.Tensor) else int(value), asked


def _sizes(shapes: Sequence[LeafShape]) -> dict[str, int]:
    """The sizes of the example that can be chosen: not those that are sums of others, `past+seq`."""
    sizes = {label: size for label, size, _ in _labelled(shapes)}
    return {label: size for label, size in sizes.items() if not _is_sum(label, size, sizes)}


def _is_sum(label: str, size: int, sizes: Mapping[str, int]) -> bool:
    parts = label.split("+")
    return len(parts) > 1 and all(part in sizes for part in parts) and sum(sizes[part] for part in parts) == size


def _may_be_empty(shapes: Sequence[LeafShape]) -> set[str]:
    """What is a part of a sum and stands in containers alone: the past of a cache, before the first token."""
    labelled = [(shape, label) for shape in shapes for axis in shape.axes if (label := _label(shape, axis)) is not None]
    parts = {part for _, label in labelled if "+" in label for part in label.split("+")}
    own = {label for _, label in labelled}  # `past+seq` may be asked of a mask whose past stays as long as it is
    return parts & own - {label for shape, label in labelled if "." not in shape.leaf.name}


def _size_of(label: str, sizes: Mapping[str, int]) -> int:
    return sizes[label] if label in sizes else sum(sizes[part] for part in label.split("+"))


def _size_at(shape: LeafShape, axis: int, sizes: Mapping[str, int]) -> int | None:
    """How long an axis is at these sizes; None of one that does not change."""
    sliding, label = shape.sliding.get(axis), _label(shape, axis)
    if sliding is not None:
        return min(_size_of(sliding.name, sizes), sliding.most)
    return _size_of(label, sizes) if label is not None else None


def _sized(leaf: object, shape: LeafShape, sizes: Mapping[str, int], draw: torch.Generator) -> Any:
    if not isinstance(leaf, torch.Tensor):
        size = _size_at(shape, 0, sizes)
        return leaf if size is None else size
    found = [_size_at(shape, axis, sizes) for axis in range(leaf.dim())]
    wanted = [given if size is None else size for size, given in zip(found, leaf.shape, strict=True)]
    if wanted == list(leaf.shape):
        return leaf.detach().clone()
    return _drawn(leaf, wanted, draw) if leaf.is_floating_point() and leaf.numel() else wrapped(leaf, wanted)


def _drawn(leaf: torch.Tensor, shape: list[int], draw: torch.Generator) -> torch.Tensor:
    """Numbers of the example in another order; of a constant one, numbers near it."""
    values = leaf.detach().flatten().cpu()
    places = torch.randint(len(values), shape, generator=draw)
    found = values[places]
    if len(values) > 1 and bool((values == values[0]).all()):
        found = found + (torch.rand(shape, generator=draw) / 8).to(leaf.dtype)
    return found.to(leaf.device)


def _with_sets(case: ModuleCase) -> ModuleCase:
    """With the sets of sizes that the module takes; where it raises is kept, too."""
    traced = case.task.sizes
    sets, refused, moved = [InputSet(name="traced", sizes=traced)], list[str](), dict[frozenset[tuple[str, int]], int]()
    for compared in _other_sets(traced, _ends(case.shapes), _may_be_empty(case.shapes)):
        error = _refusal(case, case.inputs(compared.sizes))
        if error is None:
            sets.append(compared)
            continue
        calls = enumerate(case.with_moved_numbers(compared.sizes))
        taken = next((place for place, inputs in calls if _refusal(case, inputs) is None), None)
        if taken is not None:
            moved[frozenset(compared.sizes.items())] = taken
            sets.append(compared)
            continue
        told = " ".join(f"{name}={size}" for name, size in compared.sizes.items())
        refused.append(f"{compared.name} ({told}): {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    return replace(case, sets=sets, refused=refused, moved=moved)


def _refusal(case: ModuleCase, inputs: Mapping[str, Any]) -> BaseException | None:
    """What the module raises for these inputs; None if it takes them."""
    try:
        with KeptModule(case.model).call():
            case.model(**inputs)
    except REFUSALS as error:
        return error
    return None


def _ends(shapes: Sequence[LeafShape]) -> dict[str, tuple[int, int]]:
    ends: dict[str, tuple[int, int]] = {}
    for label, _, asked in _labelled(shapes):
        low, high = ends_of(asked)
        before = ends.get(label, (0, sys.maxsize))
        ends[label] = max(before[0], low or 0), min(before[1], high if high is not None else sys.maxsize)
    return ends


def _other_sets(
    traced: Mapping[str, int], ends: Mapping[str, tuple[int, int]], empty: Collection[str]
) -> Iterator[InputSet]:
    """Sizes unlike each other, much larger ones, one of each alone, and none of those in `empty`, within the bounds."""

    def within(name: str, size: int) -> int:
        low, high = ends[name]
        return min(max(size, low), high)

    wanted = {
        "other sizes": {name: size + 1 + place for place, (name, size) in enumerate(traced.items())},
        "larger": {name: 3 * size + 2 + place for place, (name, size) in enumerate(traced.items())},
        **{f"no {name}": {**traced, name: 0} for name in sorted(empty)},
        **{f"{name} 1": {**traced, name: 1} for name in traced},
        "all 1": dict.fromkeys(traced, 1),
    }
    seen = [dict(traced)]
    for name, sizes in itertools.islice(wanted.items(), 12):
        found = {label: within(label, size) for label, size in sizes.items()}
        if found not in seen:
            seen.append(found)
            yield InputSet(name=name, sizes=found)
