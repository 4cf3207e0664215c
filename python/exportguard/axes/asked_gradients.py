"""By which names a model asks whether gradients are computed."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator, Sequence

import torch

from exportguard.model_code import is_installed
from exportguard.rewrites.calls import Called
from exportguard.rewrites.reach import all_names

#: Names under which code learns whether gradients are computed.
_ASKING = frozenset(
    ("is_grad_enabled", "requires_grad", "grad_fn", "is_leaf", "is_inference", "is_inference_mode_enabled")
)

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
#: What may stand between `self.training` and its jump, in Python 3.11 to 3.14.
_NOT_TOLD = frozenset(("EXTENDED_ARG", "TO_BOOL", "CACHE", "NOP"))


def asked_by(model: torch.nn.Module) -> list[str]:
    """The names by which what a call of the model may lead to asks, in a stable order.

    What a package asks behind its `self.training`, as layers do that may be computed again for their gradients, is
    asked in training alone.
    """
    trains = any(module.training for module in model.modules())
    asking = [code for code in Called.by(model).functions if not _ASKING.isdisjoint(all_names(code))]
    asked = (asked_in(code, trains=trains or not is_installed(code.co_filename)) for code in asking)
    return sorted(frozenset[str]().union(*asked))


@functools.lru_cache(maxsize=1024)
def asked_in(code: types.CodeType, *, trains: bool) -> frozenset[str]:
    """The names by which a code asks, and those of functions inside of it; behind `self.training` only if it `trains`.

    What is behind it lies between a jump for a false one and that jump's target, where nothing else jumps to.
    """
    inner = [asked_in(constant, trains=trains) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    instructions = [*dis.get_instructions(code)]
    within = [] if trains else [*_behind_training(code, instructions)]
    named = (instruction for instruction in instructions if instruction.opcode in dis.hasname)
    asking = [instruction for instruction in named if instruction.argval in _ASKING]
    found = {one.argval for one in asking if not any(begin < one.offset < end for begin, end in within)}
    return frozenset(found).union(*inner)


def _behind_training(code: types.CodeType, instructions: Sequence[dis.Instruction]) -> Iterator[tuple[int, int]]:
    """Between which places of a code `self.training` is true."""
    jumps = [(one.offset, one.argval) for one in instructions if one.opcode in _JUMPS]
    handlers = [(entry.start, entry.target) for entry in dis._parse_exception_table(code)]  # type: ignore[attr-defined]
    told = [one for one in instructions if one.opname not in _NOT_TOLD]
    own = code.co_varnames[:1] if code.co_argcount and not _is_set(code.co_varnames[0], instructions) else ()
    for holder, attribute, jump in zip(told, told[1:], told[2:], strict=False):
        is_asked = holder.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) and holder.argval in own
        is_asked = is_asked and attribute.opname == "LOAD_ATTR" and attribute.argval == "training"
        if not is_asked or "IF_FALSE" not in jump.opname:
            continue
        begin, end = jump.offset, jump.argval
        entered = (to for at, to in (*jumps, *handlers) if begin < to < end and not begin < at < end)
        if begin < end and next(entered, None) is None:
            yield begin, end


def _is_set(name: str, instructions: Sequence[dis.Instruction]) -> bool:
    return any(one.argval == name and one.opname.startswith(("STORE_", "DELETE_")) for one in instructions)
