"""Optimizes random ONNX files and compares what comes out with the file as it was, in onnxruntime.

    python tests/python/random_files.py --count 2000 --first 0    # PYTHONPATH has python and tests/python
    python tests/python/random_files.py --seed 17 --show          # one file, before and after

A line is printed for each file that is wrong, and counts of all at the end.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort

import exportguard
from exportguard.optimization import Target
from file_generator import DTYPES, RandomFile, Tensor
from file_steps import random_file, random_files

#: What a fused kernel may round otherwise: float32, or float16 on the way, which onnxruntime computes in either.
TOLERANCE, NARROW_TOLERANCE = 1e-4, 2e-2


@dataclass(frozen=True)
class Verdict:
    """What became of a file: "right", "skipped" (onnxruntime does not run it as it is), or what is wrong."""

    kind: str
    text: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.kind not in ("right", "skipped")


def session_of(data: bytes) -> ort.InferenceSession:
    """Without onnxruntime's own optimizer."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def feed_of(value: Tensor, sizes: dict[str, int], random: np.random.Generator) -> np.ndarray:
    """Quarters with zeros of both signs, small integers, and flags."""
    shape = [sizes[dim] if isinstance(dim, str) else dim for dim in value.shape]
    kind = DTYPES[value.dtype][1]
    if value.dtype == "bool":
        return np.asarray(random.random(shape) < 0.6, kind)
    if value.dtype in ("i64", "i32", "u8"):
        return np.asarray(random.integers(0 if value.dtype == "u8" else -3, 4, shape), kind)
    numbers = np.asarray(random.integers(-8, 9, shape) / 4, kind)
    numbers.flat[2::7] = -0.0
    return numbers


def optimized(data: bytes, target: Target, *, inlines: bool) -> bytes:
    """The file after the optimizer."""
    model = exportguard.load(data)
    model.optimize(target=target, inline_functions=inlines)
    return model.to_bytes()


def names_of(session: ort.InferenceSession) -> list[list[str]]:
    """What a caller may name."""
    given = session.get_inputs(), sorted(session.get_overridable_initializers(), key=str), session.get_outputs()
    return [[value.name for value in values] for values in given]


def verdict_of(file: RandomFile, seed: int) -> Verdict:
    """The file beside what is made of it, at all sizes that it is for, with and without inputs that have a default."""
    try:
        before = session_of(file.plain.SerializeToString())
        session_of(file.told.SerializeToString())
    except Exception as error:  # onnxruntime raises classes of its own for whatever it has no kernel for
        return Verdict("skipped", str(error))
    target: Target = "onnxruntime" if seed % 3 == 0 else "portable"
    try:
        after = session_of(optimized(file.told.SerializeToString(), target, inlines=seed % 4 == 0))
    except Exception as error:
        return Verdict("failed", f"{type(error).__name__}: {error}")
    if names_of(after) != names_of(before):
        return Verdict("names", f"{names_of(before)}, got {names_of(after)}")
    verdicts = (
        difference((before, after), feeds, NARROW_TOLERANCE if file.is_narrow else TOLERANCE)
        for i, sizes in enumerate(file.sizes)
        for feeds in _feeds(file, sizes, np.random.default_rng(seed + i))
    )
    return next((verdict for verdict in verdicts if verdict is not None), Verdict("right"))


def _feeds(file: RandomFile, sizes: dict[str, int], random: np.random.Generator) -> list[dict[str, np.ndarray]]:
    whole = {value.name: feed_of(value, sizes, random) for value in file.inputs}
    for value in file.inputs:
        if value.name in file.defaults and value.dtype == "i64":
            whole[value.name] = np.abs(whole[value.name])
    without = {name: array for name, array in whole.items() if name not in file.defaults}
    return [whole, without] if file.defaults else [whole]


def difference(
    sessions: tuple[ort.InferenceSession, ort.InferenceSession], feeds: dict[str, np.ndarray], tolerance: float
) -> Verdict | None:
    """What differs, or None."""
    before, after = sessions
    try:
        expected = before.run(None, feeds)
    except Exception:  # the file itself cannot be run at these sizes
        return None
    try:
        got = after.run(None, feeds)
    except Exception as error:
        is_empty = feeds["x"].size == 0 and "Attention" in str(error)  # what docs/optimizer.md tells
        return None if is_empty else Verdict("stopped", f"{_sizes(feeds)}: {error}")
    for value, x, y in zip(before.get_outputs(), expected, got, strict=True):
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            return Verdict("shape", f"{value.name} at {_sizes(feeds)}: {x.dtype}{x.shape}, got {y.dtype}{y.shape}")
        if not np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True):
            return Verdict("different", f"{value.name} at {_sizes(feeds)}: {x.ravel()[:8]}, got {y.ravel()[:8]}")
    return None


def _sizes(feeds: dict[str, np.ndarray]) -> str:
    return f"x {feeds['x'].shape}, p {feeds['p']}"


def show(seed: int) -> None:
    """Prints a file before and after."""
    file = random_file(seed)
    print(onnx.printer.to_text(file.told))
    target: Target = "onnxruntime" if seed % 3 == 0 else "portable"
    print(onnx.printer.to_text(onnx.load_from_string(optimized(file.told.SerializeToString(), target, inlines=False))))


def main() -> int:
    """Prints what is wrong; the exit code is 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    first, count = (arguments.first, arguments.count) if arguments.seed is None else (arguments.seed, 1)
    if arguments.show:
        show(first)
    kinds: Counter[str] = Counter()
    for seed, file in random_files(first, count):
        verdict = verdict_of(file, seed)
        kinds[verdict.kind] += 1
        if verdict.is_wrong or (verdict.text and count == 1):
            print(f"{seed}: {verdict.kind}: {verdict.text} ({', '.join(file.steps)})", flush=True)
    print(dict(kinds))
    return int(any(kind not in ("right", "skipped") for kind in kinds))


if __name__ == "__main__":
    sys.exit(main())
