"""torch.export of a module, which is told what was asked of the sizes of its inputs.

Weights that are tensors of tensors, such as torchao's quantized ones, are the plain tensors that they are made of while
it traces.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import Dim, ExportedProgram
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from exportguard.dynamic_shapes import Axis, LeafShape, mirror
from exportguard.errors import ExportError
from exportguard.example import Example, Relation
from exportguard.inputs import CallInputs
from exportguard.joined_parts import watched_for_wholes
from exportguard.rewrites.extremes import decided_by_kind, is_of_two_kinds
from exportguard.rewrites.last_digits import decided_by_last_digits

from .forms import line_of
from .vmaps import without_vmaps

logger = logging.getLogger(__name__)

_check: Any = torch._check


def traced(model: torch.nn.Module, example: Example, *, strict: bool) -> ExportedProgram:
    """torch.export, which knows what the names of the axes say, and finds no weight made of tensors.

    Raises:
        ExportError: torch made a constant of what forward computes.
    """
    # With strict=True dynamo would trace the hook.
    watched = contextlib.nullcontext() if strict else watched_for_wholes(model)
    with _plain_tensors(model), _with_their_marks(example.call), watched:
        program = without_vmaps(_traced(model, example, strict=strict))
    _require_real_constants(program)
    require_one_kind(program)
    require_all_digits(program)
    return program


def _traced(model: torch.nn.Module, example: Example, *, strict: bool) -> ExportedProgram:
    """A strict export knows the names from a `Dim`, which torch refuses where the model bounds the axis; a hint is
    taken then."""
    # Importing this takes a second, which torch.export takes anyway.
    from torch._dynamo.exc import UserError, UserErrorType

    call = _of_no_other_name(example.call) if strict else example.call

    def export(dims: Mapping[str, Dim]) -> ExportedProgram:
        shapes = for_torch(example, dims)
        return torch.export.export(model, call.args, dict(call.kwargs), dynamic_shapes=shapes, strict=strict)

    if not strict:
        with _told(model, example.relations):
            return export({})
    dims = shared_dims(example.shapes)
    try:
        return export(dims)
    except UserError as error:
        if error.error_type != UserErrorType.CONSTRAINT_VIOLATION or not dims:
            raise
        logger.info("exporting again, without telling torch that axes of one name are equal: %s", error)
    return export({})


@contextlib.contextmanager
def _with_their_marks(call: CallInputs) -> Iterator[None]:
    """What torch.export writes into inputs, which of their axes are dynamic, is not there behind the block, and what
    was there is; where it stops torch (2.11 to 2.13) leaves it, and each later export of them has dynamic axes."""
    tensors = [leaf for leaf in call.leaves() if isinstance(leaf, torch.Tensor)]
    before = [{name: held for name, held in vars(tensor).items() if _is_mark(name)} for tensor in tensors]
    try:
        yield
    finally:
        for tensor, marks in zip(tensors, before, strict=True):
            for name in [name for name in vars(tensor) if _is_mark(name) and name not in marks]:
                delattr(tensor, name)
            vars(tensor).update(marks)


def _is_mark(name: str) -> bool:
    return name.startswith("_dynamo_") or name in ("_has_dynamo_dim_marking", "_specialize_on")


def _of_no_other_name(call: CallInputs) -> CallInputs:
    """The call with tensors that are nowhere else: what dynamo finds in the model as well is one value to it, and no
    input (torch 2.11 to 2.13)."""
    leaves = [
        leaf.detach().requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in call.leaves()
    ]
    return call.with_leaves(leaves)


def shared_dims(shapes: Sequence[LeafShape]) -> dict[str, Dim]:
    """A `Dim` for each name that stands on several axes, so that torch knows those to be equal."""
    uses = Counter(name for shape in shapes for name in _names(shape))
    return {name: Dim(name) for name, count in uses.items() if count > 1 and name.isidentifier()}


def for_torch(example: Example, dims: Mapping[str, Dim]) -> dict[str, Any] | None:
    """The same as torch.export takes it; None if no axis changes.

    A name becomes the `Dim` that `dims` has for it, or else `Dim.DYNAMIC`: torch then finds the axis' bounds itself
    instead of refusing the narrower ones that a model implies.
    """
    if not any(shape.axes for shape in example.shapes):
        return None
    remaining = iter(example.shapes)

    def spec(_: object) -> Any:
        shape = next(remaining)
        return _torch_spec(shape, dims)

    return {name: mirror(value, spec) for name, value in example.call.named.items()}


def _torch_spec(shape: LeafShape, dims: Mapping[str, Dim]) -> Any:
    if not isinstance(shape.leaf.value, torch.Tensor):
        return Dim.DYNAMIC if shape.axes else None  # torch takes no named Dim for a number
    return {axis: _torch_axis(asked, dims) for axis, asked in shape.axes.items()} or None


def _torch_axis(asked: Axis, dims: Mapping[str, Dim]) -> Axis:
    return dims.get(asked, Dim.DYNAMIC) if isinstance(asked, str) else asked


def _names(shape: LeafShape) -> Iterator[str]:
    if not isinstance(shape.leaf.value, torch.Tensor):
        return iter(())
    return (asked for asked in shape.axes.values() if isinstance(asked, str))


def _is_one_symbol(sizes: Sequence[torch.SymInt]) -> bool:
    """Whether torch knows already that two sizes are equal; to ask it would make nodes."""
    return len(sizes) == 2 and sizes[0].node.expr == sizes[1].node.expr


@contextlib.contextmanager
def _told(model: torch.nn.Module, relations: Sequence[Relation]) -> Iterator[None]:
    """While the block traces the model, torch knows from the beginning what the names say.

    It then takes one symbol for all sizes that are equal, and notes no guard for what follows from the names.
    """

    def tell(_: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        leaves = pytree.tree_leaves((args, dict(kwargs)))
        for relation in relations:
            sizes = [place.size(leaves) for place in (relation.place, *relation.sum_of)]
            if all(isinstance(size, torch.SymInt) for size in sizes) and not _is_one_symbol(sizes):
                _check(sizes[0] == sum(sizes[1:]))

    handle = model.register_forward_pre_hook(tell, with_kwargs=True, prepend=True)
    try:
        yield
    finally:
        handle.remove()


def _require_real_constants(program: ExportedProgram) -> None:
    """Torch takes a tensor that it lost sight of for a constant, which has no numbers."""
    lost = [name for name, constant in program.constants.items() if isinstance(constant, FakeTensor)]
    if lost:
        raise ExportError(
            f"torch.export lost sight of a tensor that forward computes and made it a constant without numbers "
            f"({lost[0]}); transforms of torch.func within each other, such as jacrev, are the usual reason: "
            f"write the derivative with torch.func.grad, vjp or torch.autograd.grad, which are traced"
        )


def require_one_kind(program: ExportedProgram) -> None:
    """Refuses a number that is an int at some sizes and a float at others, where its kind decides what is computed.

    Raises:
        ExportError: with the line of the model.
    """
    modules = (module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule))
    node = next(decided_by_kind([module.graph for module in modules]), None)
    if node is not None:
        numbers = [number for number in node.all_input_nodes if is_of_two_kinds(number.meta.get("val"))]
        raise ExportError(
            f"{line_of(node) or line_of(numbers[0])}: what min(…) or max(…) gives of an int and a float is an int for "
            "some inputs and a float for others in Python, and a tensor made of it alone has a dtype by that, while a "
            "graph has one: give both operands one kind (`2` and `n`, or `2.5` and `n * 1.0`), or make the result one, "
            "int(…)"
        )


def require_all_digits(program: ExportedProgram) -> None:
    """Refuses what the last digit of a number of sizes decides, where a file computes its functions otherwise than C.

    Raises:
        ExportError: with the line of the model.
    """
    node = next(decided_by_last_digits(program.graph_module), None)
    if node is not None:
        line = next(filter(None, map(line_of, (node, *node.all_input_nodes))), "")
        raise ExportError(
            f"{line}: a number that functions of math make of a size is rounded or compared there, and a file computes "
            "some of them without C's last digit, which may decide it: round the value of each function by itself, "
            "compute with whole numbers (`n.bit_length()`, `n * n`), or with math.sqrt, exp, log, pow, sin and cos, "
            "which are C's"
        )


# ------------------------------------------------------------------------------------------ weights made of tensors

_STATE = ("_parameters", "_buffers", "_modules")


def _of_tensors(module: torch.nn.Module) -> list[str]:
    """Names of the module's own parameters and buffers that consist of tensors."""
    own = itertools.chain(module._parameters.items(), module._buffers.items())
    is_made_of_tensors: Callable[[object], bool] = is_traceable_wrapper_subclass  # which tells mypy what cannot be
    return [name for name, tensor in own if tensor is not None and is_made_of_tensors(tensor)]


def _opened(module: torch.nn.Module, names: list[str]) -> None:
    # torch 2.11 to 2.13: what AOTInductor opens such weights with. It imports a lot, and few models have them.
    from torch._functorch._aot_autograd.subclass_parametrization import UnwrapTensorSubclass

    for name in names:
        parametrize.register_parametrization(module, name, UnwrapTensorSubclass())


def _kept(module: torch.nn.Module) -> tuple[Any, ...]:
    return (module, type(module), [dict(vars(module)[name]) for name in _STATE])


def _put_back(kept: tuple[Any, ...]) -> None:
    module, kind, dictionaries = kept
    module.__class__ = kind
    for name, before in zip(_STATE, dictionaries, strict=True):
        now = vars(module)[name]
        now.clear()
        now.update(before)


@contextlib.contextmanager
def _plain_tensors(model: torch.nn.Module) -> Iterator[None]:
    """Every weight that consists of tensors is computed from them for the time of the block: torch.export traces what
    is done with the parts, and finds no weight in the whole. The model is as it was afterwards, to the same objects.
    """
    found = {module: names for module in model.modules() if (names := _of_tensors(module))}
    kept = [_kept(module) for module in found]
    try:
        for module, names in found.items():
            _opened(module, names)
        yield
    finally:
        for each in kept:
            _put_back(each)
