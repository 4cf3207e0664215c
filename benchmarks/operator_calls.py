"""Calls of ATen operators with arguments that are drawn by their schemas, exported, run, and compared with eager.

    python benchmarks/operator_calls.py [--only 'aten.embedding*' aten.gather.default] [--calls 6] [--attempts 400]
                                        [--part 1/4] [--seed 0]

Of every operator that has a lowering, arguments are drawn until eager takes them: tensors of any rank, empty ones
among them, negative axes and numbers, defaults and what they are not. No sample of torch's has to know them. A call is
exported with fixed sizes. Each operator is tried in a process of its own; one that ends is told with the call that
ended it. A line tells each call whose answer differs from eager's or whose file does not run, and each error that is
none of this package's; the last line counts.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import itertools
import os
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from operator_samples import add_part, difference, fed, part_of, silence, tensors_of

from exportguard import ExportGuardError, _core, to_onnx

#: Give no numbers, other ones at every call, or read what no program has.
_WITHOUT_AN_ANSWER = (
    "aten.*empty*", "aten.*rand*", "aten.normal*", "aten.bernoulli*", "aten.multinomial*", "aten.cauchy*",
    "aten.exponential*", "aten.geometric*", "aten.log_normal*", "aten.uniform*", "aten.*dropout*", "aten.rrelu*",
    "aten.*resize*", "aten.*fractional*", "aten.*scaled_dot_product*", "aten.poisson*", "aten.binomial*",
    "aten._assert*", "aten.sym_*", "aten.*svd*", "aten.*eig*", "aten.lift*",
)  # fmt: skip

_DRAWN = {"int", "SymInt", "float", "SymFloat", "bool", "number", "Scalar", "Tensor"}

_FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64)
_DTYPES = (*_FLOATS, *_FLOATS, torch.int64, torch.int64, torch.int32, torch.bool, torch.uint8, torch.float16)


#: Numbers that stand for something else: a schema has them as `int`.
_OF_MEMORY = ("dtype", "input_dtype", "out_dtype", "layout", "memory_format", "device", "pin_memory")


class Drawn:
    """Arguments for one call; tensors share a few sizes, so that they fit often."""

    def __init__(self, drawing: random.Random) -> None:
        self._drawing = drawing
        self.rank = drawing.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5))
        few = drawing.sample((0, 1, 2, 3, 4, 5), 2) if drawing.random() < 0.3 else drawing.sample((2, 3, 4, 5), 2)
        self.sizes = [drawing.choice(few) for _ in range(self.rank)]
        self.dtype = drawing.choice(_DTYPES)

    def tensor(self, name: str) -> torch.Tensor:
        draw = self._drawing
        sizes, dtype = list(self.sizes), self.dtype
        change = draw.random()
        if change < 0.15:
            sizes = sizes[draw.randint(0, len(sizes)) :]
        elif change < 0.3 and sizes:
            sizes[draw.randrange(len(sizes))] = draw.choice((0, 1, 2, 3))
        elif change < 0.45:
            sizes = [draw.choice(sizes or [1])] if draw.random() < 0.7 else []
        if any(part in name for part in ("index", "indices", "offset", "target")) or draw.random() < 0.05:
            dtype = torch.int64
        elif "mask" in name or "condition" in name:
            dtype = torch.bool
        if dtype.is_floating_point:
            tensor = torch.randn(sizes).to(dtype)
        else:
            tensor = torch.randint(0, 2 if dtype == torch.bool or draw.random() < 0.5 else 5, sizes).to(dtype)
        if len(sizes) > 1 and draw.random() < 0.2:
            tensor = tensor.transpose(0, -1).contiguous().transpose(0, -1)
        return tensor

    def _integer(self, name: str) -> int:
        draw = self._drawing
        if name == "reduction":
            return draw.randint(0, 2)
        if name in {"dim", "dim0", "dim1", "axis", "start_dim", "end_dim", "source", "destination"}:
            return draw.randint(-max(self.rank, 1), max(self.rank, 1) - 1)
        return draw.choice((-1, 0, 1, 1, 1, 2, 2, 3, 4))

    def _element(self, name: str, kind: str) -> Any:
        draw = self._drawing
        if kind in {"int", "SymInt"}:
            return self._integer(name)
        if name in {"rcond", "rtol", "atol"}:  # one of nothing keeps what rounding alone makes
            return draw.choice((0.01, 0.5))
        if kind in {"float", "SymFloat"}:
            return draw.choice((0.0, 0.5, 1.0, 2.0, -1.5, 1e-5))
        if kind == "bool":
            return draw.random() < 0.5
        if kind in {"number", "Scalar"}:
            return draw.choice((0, 1, 2, -1, 0.5, -1.5, 3, 0.0, True))
        return self.tensor(name)

    def argument(self, argument: Any) -> Any:
        """A value for an argument of a schema; its default where its type is not drawn."""
        is_drawn = _is_drawn(argument)
        if argument.has_default_value() and (not is_drawn or self._drawing.random() < 0.5):
            return argument.default_value
        return self._value(argument.name, argument.type) if is_drawn else None

    def _value(self, name: str, kind: Any) -> Any:
        draw = self._drawing
        if kind.kind() == "OptionalType":
            return None if draw.random() < 0.35 else self._value(name, kind.getElementType())
        if kind.kind() == "ListType":
            count = draw.choice((0, 1, 1, 2, 2, 3, self.rank, self.rank))
            return [self._value(name, kind.getElementType()) for _ in range(count)]
        return self._element(name, str(kind))


def _is_drawn(argument: Any) -> bool:
    kind = argument.type
    while kind.kind() in {"OptionalType", "ListType"}:
        kind = kind.getElementType()
    return argument.name not in _OF_MEMORY and str(kind) in _DRAWN


class Call(torch.nn.Module):
    """An operator whose tensors are the inputs; the other arguments stay."""

    def __init__(self, operator: Any, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.operator, self.arguments = operator, arguments
        self.positional = [argument.name for argument in operator._schema.arguments if not argument.kwarg_only]
        self.places = [(name, place) for name, value in arguments.items() for place in _places(value)]
        self.tensors = [_at(arguments[name], place) for name, place in self.places]

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = {name: list(value) if isinstance(value, list) else value for name, value in self.arguments.items()}
        for (name, place), tensor in zip(self.places, tensors, strict=True):
            if place is None:
                given[name] = tensor
            else:
                given[name][place] = tensor
        return self.operator(*[given.pop(name) for name in self.positional], **given)

    def __str__(self) -> str:
        def shown(value: Any) -> str:
            if isinstance(value, torch.Tensor):
                return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            return f"[{', '.join(map(shown, value))}]" if isinstance(value, list) else repr(value)

        return f"{self.operator}({', '.join(f'{name}={shown(value)}' for name, value in self.arguments.items())})"


def _places(value: Any) -> list[int | None]:
    if isinstance(value, torch.Tensor):
        return [None]
    return [place for place, part in enumerate(value) if isinstance(part, torch.Tensor)] if type(value) is list else []


def _at(value: Any, place: int | None) -> torch.Tensor:
    return value if place is None else value[place]


def operators(patterns: Sequence[str]) -> Iterator[Any]:
    """Those that have a lowering, write into none of their arguments and give the same at every call."""
    for name in _core.lowering_targets():
        if not name.startswith("aten.") or any(fnmatch.fnmatch(name, pattern) for pattern in _WITHOUT_AN_ANSWER):
            continue
        if patterns and not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            continue
        packet, overload = name.removeprefix("aten.").rsplit(".", 1)
        operator = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if operator is None or operator._schema.is_mutable:
            continue
        arguments = operator._schema.arguments
        is_able = all(_is_drawn(one) or one.has_default_value() or one.name in _OF_MEMORY for one in arguments)
        if is_able and any("Tensor" in str(one.type) for one in arguments):
            yield operator


def calls(
    operator: Any, most: int, attempts: int, drawing: random.Random, tell: Callable[[str], None]
) -> Iterator[Call]:
    """Those that eager takes and whose results are tensors, at most so many; `tell` hears what is about to run."""
    found = itertools.count()
    for _ in range(attempts):
        drawn = Drawn(drawing)
        call = Call(operator, {argument.name: drawn.argument(argument) for argument in operator._schema.arguments})
        tell(f"in eager: {call}")
        try:
            returned = call(*[tensor.clone() for tensor in call.tensors])
        except Exception:  # torch raises whatever it likes for arguments that do not fit
            continue
        values = tensors_of(returned)
        if (
            call.tensors
            and values
            and all(value.layout == torch.strided and not value.is_quantized for value in values)
        ):
            yield call
            if next(found) + 1 == most:
                return


def outcome(call: Call) -> tuple[str, str]:
    """A kind of answer, and what there is to say of it."""
    given = tuple(tensor.clone() for tensor in call.tensors)
    expected = tensors_of(call(*[tensor.clone() for tensor in given]))
    try:
        program = torch.export.export(call, given, strict=False)
    except Exception as error:  # torch raises whatever it likes here
        return "stops in torch.export", str(error).splitlines()[0][:150] if str(error) else type(error).__name__
    try:
        model = to_onnx(program)
    except ExportGuardError as error:
        return "refused", str(error).splitlines()[0][:250]
    except Exception as error:
        return "bare error", f"{type(error).__name__}: {str(error)[:250]}"
    try:
        got = [torch.as_tensor(value) for value in fed(model, given)]
    except Exception as error:
        return "stops", str(error)[-250:].replace("\n", " ")
    if len(got) != len(expected):
        return "other", f"{len(got)} outputs, expected {len(expected)}"
    told = [difference(a, b) for a, b in zip(got, expected, strict=True)]
    text = next((f"output {place}: {text}" for place, text in enumerate(told) if text), "")
    return ("other", text) if text else ("right", "")


def _try(operator: Any, options: argparse.Namespace, tell: Callable[[str], None]) -> None:
    drawing = random.Random(f"{operator} {options.seed}")
    torch.manual_seed(options.seed)
    for call in calls(operator, options.calls, options.attempts, drawing, tell):
        tell(f"begins: {call}")
        kind, text = outcome(call)
        tell(f"{kind}: {call}: {text}")


def tried_apart(operator: Any, options: argparse.Namespace) -> Iterator[str]:
    """What a process of its own says of an operator, line by line."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            with os.fdopen(writer, "w", buffering=1) as out:
                _try(operator, options, lambda line: print(line.replace("\n", " "), file=out))
        except BaseException:
            os._exit(1)  # what forked goes no further
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        last = f"begins: {operator}"
        for line in lines:
            last = line.rstrip("\n")
            yield last
    _, status = os.waitpid(child, 0)
    if status:
        yield f"process ended ({os.waitstatus_to_exitcode(status)}): {last}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=(), help="names of operators with their overloads, with wildcards")
    parser.add_argument("--calls", type=int, default=6, help="of each operator")
    parser.add_argument("--attempts", type=int, default=400, help="to draw arguments that eager takes")
    parser.add_argument("--show", nargs="*", default=("other", "stops", "bare error", "process ended"))
    add_part(parser)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    silence()
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    for operator in part_of(operators(options.only), options.part):
        for line in tried_apart(operator, options):
            kind = line.partition(":")[0].partition(" (")[0]
            if kind in {"begins", "in eager"}:
                continue
            kind = "ended in eager" if kind == "process ended" and "): in eager:" in line else kind
            counts[kind] += 1
            if kind in options.show:
                print(line, flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))


if __name__ == "__main__":
    main()
