"""What onnxruntime computes otherwise than ONNX says, operator by operator: every dtype, special values, odd shapes.

    python benchmarks/runtime_faults.py [--only Pow ReduceSum]

For every case a model of one operator is built and run in onnxruntime and in this package's evaluator, which has every
dtype and is held against the node tests of the onnx package. Where they differ, one line tells the operator, the dtype,
the first element that differs and both answers; what onnxruntime has no kernel for is counted, no fault. The last line
counts all; `src/lowering/target_facts.h` names the departures that lowerings write around.
"""

from __future__ import annotations

import argparse
import collections
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import onnxruntime
import torch
from own_process import told_by

from exportguard import GraphBuilder
from exportguard.errors import ExportGuardError

FLOATS = (torch.float16, torch.float32, torch.float64)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
NAN, INF = float("nan"), float("inf")

#: Relative and absolute, of what is rounded.
TOLERANCES = {torch.float16: (4e-3, 1e-4), torch.float32: (2e-5, 1e-6), torch.float64: (1e-12, 1e-14)}

Write = Callable[[Any, list[Any]], Any]


@dataclass(frozen=True)
class Case:
    """One operator over some tensors; `write` is called with the operators of a builder and the inputs."""

    name: str
    write: Write
    inputs: tuple[torch.Tensor, ...]
    opset: int | None = None
    may_die: bool = False

    @property
    def dtype(self) -> torch.dtype:
        return self.inputs[0].dtype


# ------------------------------------------------------------------------------------------------ values


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """What a dtype has at its ends and around zero; NaN, infinities and both zeros of floats."""
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        plain = [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 3.0, -3.7, 40.0, limits.max, limits.min, limits.tiny]
        return torch.tensor([NAN, INF, -INF, *plain], dtype=dtype)
    limits_of_integers = torch.iinfo(dtype)
    most = min(limits_of_integers.max, 2**63 - 1)
    whole = [limits_of_integers.min, most, most - 1, 0, 1, 2, 3, 7, 100]
    return torch.tensor(whole + ([-1, -2, -7] if limits_of_integers.min else []), dtype=torch.int64).to(dtype)


def pairs(dtype: torch.dtype, skip: Callable[[Any, Any], bool] = lambda a, b: False) -> tuple[torch.Tensor, ...]:
    """Every number beside every other one."""
    kept = [(a, b) for a, b in itertools.product(numbers(dtype).tolist(), repeat=2) if not skip(a, b)]
    columns = list(zip(*kept, strict=True))
    if dtype.is_floating_point or dtype == torch.bool:
        return tuple(torch.tensor(column, dtype=dtype) for column in columns)
    return tuple(torch.tensor(column, dtype=torch.int64).to(dtype) for column in columns)


def overflows(dtype: torch.dtype) -> Callable[[Any, Any], bool]:
    """Quotients that C leaves open: by zero, and of the least number by -1."""
    if dtype.is_floating_point:
        return lambda a, b: False
    least = torch.iinfo(dtype).min
    return lambda a, b: b == 0 or (a == least and b == -1)


def shapes_of(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Matrices of plain and of special numbers, of one row, one column, and without elements."""
    values = numbers(dtype)
    grid = values.repeat(3)[: 3 * (len(values) // 2)].reshape(3, -1)
    small = (torch.arange(12) % 7).reshape(3, 4).to(dtype)
    yield from (small, grid, small[:1], small[:, :1], small[:0], small[:, :0])


# ------------------------------------------------------------------------------------------------ operators


def plain(op: str, **attributes: Any) -> Write:
    return lambda ops, x: getattr(ops, op)(*x, **attributes)


def elementwise() -> Iterator[Case]:
    unary = {
        NUMBERS: "Abs Sign",
        FLOATS + SIGNED: "Neg",
        FLOATS: "Ceil Floor Round Sqrt Exp Log Reciprocal Sin Cos Tanh Sigmoid IsNaN IsInf Erf Tan Asin Acos Atan Sinh "
        "Cosh Asinh Acosh Atanh Softplus Softsign Elu Selu LeakyRelu HardSigmoid HardSwish Relu Gelu",
        INTEGERS: "BitwiseNot",
    }
    for dtypes, names in unary.items():
        for op, dtype in itertools.product(names.split(), dtypes):
            yield Case(op, plain(op), (numbers(dtype),))
    binary = {
        NUMBERS: "Add Sub Mul Less LessOrEqual Greater GreaterOrEqual Equal Max Min",
        INTEGERS: "BitwiseAnd BitwiseOr BitwiseXor",
    }
    for dtypes, names in binary.items():
        for op, dtype in itertools.product(names.split(), dtypes):
            yield Case(op, plain(op), pairs(dtype))
    for dtype in NUMBERS:
        yield Case("Div", plain("Div"), pairs(dtype, overflows(dtype)))
        fmod = int(dtype.is_floating_point)
        yield Case("Mod", plain("Mod", fmod=fmod), pairs(dtype, overflows(dtype)))
        yield Case("Where", lambda ops, x: ops.Where(ops.Less(x[0], x[1]), x[0], x[1]), pairs(dtype))
    for dtype in (*FLOATS, torch.int32, torch.int64):
        base, exponent = pairs(dtype, lambda a, b: isinstance(b, int) and not 0 <= b < 20)
        yield Case("Pow", plain("Pow"), (base, exponent))
        yield Case("Clip", plain("Clip"), bounds(dtype))


def bounds(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    values = numbers(dtype)
    return values, values.max() if not dtype.is_floating_point else torch.tensor(-1.0, dtype=dtype), values[-1].clone()


def reductions() -> Iterator[Case]:
    names = "ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceMax ReduceMin ReduceSumSquare ReduceLogSumExp"
    for op, dtype in itertools.product(names.split(), (*FLOATS, torch.int32, torch.int64)):
        for x, axis in itertools.product(shapes_of(dtype), (0, 1)):
            if x.shape[axis]:
                yield Case(op, lambda ops, x, op=op, axis=axis: getattr(ops, op)(x[0], [axis], keepdims=0), (x,))
    for op, dtype in itertools.product(("ArgMax", "ArgMin"), (*FLOATS, torch.int8, torch.int32, torch.int64)):
        for x in shapes_of(dtype):
            if x.shape[1] and not x.isnan().any():  # ONNX leaves the place of a NaN open
                yield Case(op, plain(op, axis=1, keepdims=0), (x,))
    for op, dtype in itertools.product(("Softmax", "LogSoftmax"), FLOATS):
        for x, axis in itertools.product(shapes_of(dtype), (0, -1)):
            yield Case(op, plain(op, axis=axis), (x,))
    for dtype, reverse, exclusive in itertools.product((*FLOATS, torch.int32, torch.int64), (0, 1), (0, 1)):
        for x in shapes_of(dtype):
            write: Write = lambda ops, x, r=reverse, e=exclusive: ops.CumSum(  # noqa: E731
                x[0], torch.tensor(1), reverse=r, exclusive=e
            )
            yield Case("CumSum", write, (x,))


def shapes() -> Iterator[Case]:
    for dtype in (*NUMBERS, torch.bool):
        for x in shapes_of(dtype):
            yield Case("Slice", lambda ops, x: ops.Slice(x[0], [-1], [-(2**62)], [1], [-2]), (x,))
            yield Case("Concat", lambda ops, x: ops.Concat(x[0], x[0], axis=-1), (x,))
            yield Case("Tile", lambda ops, x: ops.Tile(x[0], [2, 3]), (x,))
            yield Case("Expand", lambda ops, x: ops.Expand(ops.Unsqueeze(x[0], [0]), [2, 1, 1]), (x,))
            yield Case("Transpose", plain("Transpose", perm=[1, 0]), (x,))
            yield Case("Pad", lambda ops, x: ops.Pad(x[0], [1, 0, 0, 2]), (x,))
            if dtype != torch.bool:
                yield Case("Trilu", lambda ops, x: ops.Trilu(x[0], torch.tensor(1), upper=0), (x,))
            if x.numel():
                index = torch.tensor([[0, -1], [-1, 0]])
                yield Case("Gather", lambda ops, x, i=index: ops.Gather(x[0], i, axis=1), (x,))
                row = index[:1, : 1 + (x.shape[1] > 1)]
                yield Case("GatherElements", lambda ops, x, i=row: ops.GatherElements(x[0], i, axis=1), (x,))
                yield Case("NonZero", plain("NonZero"), (x,))


def scatters() -> Iterator[Case]:
    index = torch.tensor([[0, 1, 0, -1], [1, 1, 0, 0], [2, 2, 2, 2]])
    for dtype, reduction in itertools.product(NUMBERS, ("none", "add", "mul", "max", "min")):
        for x in list(shapes_of(dtype))[:2]:
            x = x[:, :4]
            if reduction == "none":
                update, at = torch.cat([x[2:], x[1:2], x[:1]])[:, :1].contiguous(), index[:, :1]
            else:
                update, at = torch.cat([x[2:], x[1:2], x[:1]]), index[:, : x.shape[1]]
            write: Write = lambda ops, x, i=at, r=reduction: ops.ScatterElements(  # noqa: E731
                x[0], i, x[1], axis=1, reduction=r
            )
            yield Case(f"ScatterElements {reduction}", write, (x, update))


def products() -> Iterator[Case]:
    for dtype in (*FLOATS, torch.int32, torch.int64):
        a, b = (torch.arange(9).reshape(3, 3).to(dtype), torch.arange(6).reshape(3, 2).to(dtype))
        yield Case("MatMul", plain("MatMul"), (a, b))
        yield Case("MatMul of nothing", plain("MatMul"), (a[:, :0].contiguous(), b[:0]))
        yield Case("MatMul by a vector", plain("MatMul"), (a, b[:, 0].contiguous()))
        turned: Write = lambda ops, x: ops.MatMul(ops.Transpose(x[0], perm=[1, 0]), x[1])  # noqa: E731
        yield Case("MatMul of a transposed matrix", turned, (a, b))
        yield Case("MatMul of a transposed matrix by a vector", turned, (a, b[:, 0].contiguous()))
        scaled: Write = lambda ops, x: ops.Mul(ops.MatMul(x[0], x[1]), x[2])  # noqa: E731
        if dtype.is_floating_point:
            yield Case("MatMul times a number", with_constant(scaled, torch.tensor(0.3, dtype=dtype)), (a, b))
        yield Case("MatMul of special numbers", plain("MatMul"), (special_matrix(dtype), a))
    for dtype in FLOATS:
        x = (torch.arange(2 * 3 * 5 * 6) % 11 - 5).reshape(2, 3, 5, 6).to(dtype)
        holed = x.clone()
        holed.view(-1)[::7] = NAN
        for name, image in (("", x), (" of NaN", holed)):
            pool = {"kernel_shape": [2, 2], "strides": [1, 2]}
            yield Case(f"MaxPool{name}", plain("MaxPool", **pool), (image,))
            yield Case(f"AveragePool{name}", plain("AveragePool", **pool, pads=[0, 1, 1, 0]), (image,))
        yield Case("AveragePool up", plain("AveragePool", kernel_shape=[2, 2], strides=[2, 4], ceil_mode=1), (x,))
        padded: Write = lambda ops, x: ops.MaxPool(  # noqa: E731
            ops.Pad(x[0], [0, 0, 1, 1, 0, 0, 1, 1]), kernel_shape=[2, 2], strides=[2, 2]
        )
        yield Case("MaxPool of a Pad", padded, (-x.abs() - 1,))
        weight = (torch.arange(4 * 3 * 2 * 2) % 5 - 2).reshape(4, 3, 2, 2).to(dtype)
        yield Case("Conv", plain("Conv", pads=[1, 0, 0, 1], strides=[2, 1]), (x, weight))
        yield Case("ConvTranspose", plain("ConvTranspose", strides=[2, 1]), (x, weight.transpose(0, 1).contiguous()))
        for inverse in (0, 1):
            signal = torch.stack([x[0, 0], x[0, 1]], -1)
            write: Write = lambda ops, x, i=inverse: ops.DFT(x[0], None, torch.tensor(1), inverse=i)  # noqa: E731
            yield Case(f"DFT{' inverse' * inverse}", write, (signal,), 20)


def with_constant(write: Write, constant: torch.Tensor) -> Write:
    return lambda ops, x: write(ops, [*x, constant])


def special_matrix(dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.tensor([[NAN, 1, 2], [INF, 1, 0], [0, 0, 0]], dtype=dtype)
    return numbers(dtype)[:9].reshape(3, 3)


def orders() -> Iterator[Case]:
    for dtype, largest in itertools.product((*FLOATS, *SIGNED, torch.uint8), (0, 1)):
        for x in shapes_of(dtype):
            if x.shape[1] and not x.isnan().any():
                write: Write = lambda ops, x, k=x.shape[1], g=largest: ops.TopK(x[0], [k], largest=g)  # noqa: E731
                yield Case("TopK", write, (x,))
    for dtype in (*FLOATS, torch.int8, torch.int64):
        x = next(iter(shapes_of(dtype)))
        yield Case("Unique", plain("Unique", sorted=1), (x,))


def casts() -> Iterator[Case]:
    for source, target in itertools.product((*FLOATS, *INTEGERS, torch.bool), repeat=2):
        values = numbers(source)
        if source.is_floating_point and not target.is_floating_point:  # others are left open
            values = values[values.isfinite() & (values.abs() < 100) & ((values > -1) | (target in SIGNED))]
        yield Case(
            f"Cast to {str(target).removeprefix('torch.')}", lambda ops, x, t=target: ops.Cast(x[0], to=t), (values,)
        )


def empties() -> Iterator[Case]:
    """Products and layers without an element, some of which end the process: each runs in one of its own."""
    for letters, perm in (("kbn", [1, 2, 0]), ("nbk", [1, 0, 2]), ("knb", [2, 1, 0]), ("bkn", [0, 2, 1])):
        turned: Write = lambda ops, x, p=perm: ops.MatMul(ops.Transpose(x[0], perm=p), x[1])  # noqa: E731
        for empty in "bnk":
            sizes = {"b": 2, "n": 4, "k": 5, "m": 6, empty: 0}
            shapes_of_both = [[sizes[letter] for letter in word] for word in (letters, "bkm")]
            x, y = (torch.ones(shape) for shape in shapes_of_both)
            yield Case(f"MatMul of nothing, transposed {perm}", turned, (x, y), may_die=True)
    for batch, steps in ((0, 3), (2, 0)):
        x = torch.ones(steps, batch, 5)
        for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
            weights = (torch.ones(1, gates * 3, 5), torch.ones(1, gates * 3, 3))
            layer: Write = lambda ops, x, o=op: getattr(ops, o)(*x, hidden_size=3)  # noqa: E731
            yield Case(f"{op} of nothing", layer, (x, *weights), may_die=True)
    one_matrix = (torch.ones(4, 5), torch.ones(0, 5, 6))
    yield Case("MatMul of one matrix and no other", plain("MatMul"), one_matrix, may_die=True)
    yield Case("LayerNormalization of nothing", plain("LayerNormalization"), (torch.ones(2, 0), torch.ones(0)))
    terms = (torch.ones(8, 0), torch.ones(7, 0))
    yield Case("Einsum of nothing", plain("Einsum", equation="nk,mk->nm"), terms, may_die=True)


FAMILIES = (elementwise, reductions, shapes, scatters, products, orders, casts, empties)


def all_cases() -> Iterator[Case]:
    for family in FAMILIES:
        yield from family()


# ------------------------------------------------------------------------------------------------ the comparison


def build(case: Case) -> Any:
    """A model of the one operator, every axis of every input dynamic, so that nothing is folded."""
    g = GraphBuilder(**({} if case.opset is None else {"opset": case.opset}))
    values = [g.input(f"x{i}", x.dtype, [f"n{i}_{a}" for a in range(x.ndim)]) for i, x in enumerate(case.inputs)]
    found = case.write(g.op, values)
    for i, value in enumerate(found if isinstance(found, tuple) else (found,)):
        if value is not None:
            g.output(value, f"y{i}")
    return g.to_model()


def difference(got: torch.Tensor, expected: torch.Tensor) -> str:
    """The first element that differs and both answers; empty where none does."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return f"{got.dtype} {tuple(got.shape)}, expected {expected.dtype} {tuple(expected.shape)}"
    relative, absolute = TOLERANCES.get(got.dtype, (0.0, 0.0))
    wide = [x.double() if x.is_floating_point() else x.to(torch.int64) for x in (got, expected)]
    bad = ~torch.isclose(*wide, rtol=relative, atol=absolute, equal_nan=True)
    if not bad.any():
        return ""
    at = tuple(bad.nonzero()[0].tolist())
    return f"{got[at].item()} at {list(at)}, expected {expected[at].item()} ({int(bad.sum())} of {bad.numel()})"


def outcome(case: Case) -> tuple[str, str]:
    """ "right", "wrong", "no kernel" or "not built", and what there is to say."""
    return _in_child(case) if case.may_die else _in_this_process(case)


def _in_this_process(case: Case) -> tuple[str, str]:
    try:
        model = build(case)
    except ExportGuardError as error:
        return "not built", str(error).splitlines()[0]
    feed = {f"x{i}": x for i, x in enumerate(case.inputs)}
    expected = model.run(feed, runner="evaluator")
    try:
        got = model.run(feed, runner="onnxruntime")
    except Exception as error:  # onnxruntime has an exception of its own for each kind of failure
        is_missing = "NOT_IMPLEMENTED" in str(error) or "NotImplemented" in type(error).__name__
        return ("no kernel", "") if is_missing else ("wrong", f"fails: {str(error).splitlines()[-1][-120:]}")
    told = [text for name in expected if (text := difference(torch.as_tensor(got[name]), expected[name]))]
    return ("wrong", told[0]) if told else ("right", "")


def _in_child(case: Case) -> tuple[str, str]:
    """The outcome in a process of its own, which a fault may end."""
    (told,) = told_by([lambda: ": ".join(_in_this_process(case))])
    if told.startswith("ends the process"):
        return "wrong", told
    kind, _, text = told.partition(": ")
    return kind, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=(), help="operators")
    only = set(parser.parse_args().only)
    onnxruntime.set_default_logger_severity(4)
    counts: collections.Counter[str] = collections.Counter()
    told: set[tuple[str, torch.dtype]] = set()
    for case in all_cases():
        if only and case.name.split()[0] not in only:
            continue
        kind, text = outcome(case)
        counts[kind] += 1
        if kind in ("wrong", "not built") and (case.name, case.dtype) not in told:
            told.add((case.name, case.dtype))
            sizes = ", ".join(str(list(x.shape)) for x in case.inputs)
            print(f"{kind}: {case.name} of {str(case.dtype).removeprefix('torch.')} {sizes}: {text}")
    print(f"onnxruntime {onnxruntime.__version__}:", ", ".join(f"{count} {kind}" for kind, count in counts.items()))


if __name__ == "__main__":
    main()
