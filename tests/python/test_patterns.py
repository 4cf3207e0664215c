"""Every pattern of the optimizer: what it makes, what it leaves alone and why, and that answers stay.

`optimizer_cases/<pattern>.txt` has a graph that matches, what becomes of it, and graphs that stay with the reason. What
is drawn from them (`look_alikes.py`) is run before and after, in onnxruntime and in the evaluator, at several sizes.
All that can be drawn, some ten thousand graphs: `python tests/python/test_patterns.py [pattern ...]`.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as states

from exportguard import _core
from exportguard.errors import ExportGuardError
from exportguard.runners.evaluator import EvaluatorSession
from look_alikes import Program, look_alikes

CASES = Path(__file__).parent / "optimizer_cases"
TARGETS = {name: target for name, *_, target in _core.optimizer_patterns()}
PATTERNS = list(TARGETS)
NEVER_DECLINE = ("identity",)
DTYPES = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i64": np.int64, "i32": np.int32, "bool": np.bool_}
TOLERANCES = {"float16": 2e-3, "float32": 1e-4, "float64": 1e-4}
BASE = {"b": 2, "s": 3, "t": 4, "p": 5, "h": 7, "n": 2}
POSITIONS = 16  # that a text has at most
MOST = 40  # of each pattern
RUN_ERRORS = (
    ExportGuardError,
    states.Fail,
    states.InvalidArgument,
    states.RuntimeException,
    states.NotImplemented,
    states.InvalidGraph,
)
ort.set_default_logger_severity(4)


class Case(NamedTuple):
    """A file: graphs in the text format without the line of the opset."""

    matches: str
    becomes: str
    stays: list[tuple[str, str]]  # reason, graph


def case_of(pattern: str) -> Case:
    matches, *sections = (CASES / f"{pattern}.txt").read_text(encoding="utf-8").split("---- ")
    titled = [section.split("\n", 1) for section in sections]
    becomes = next(graph for title, graph in titled if title == "becomes")
    stays = [(title.removeprefix("stays: "), graph.strip()) for title, graph in titled if title.startswith("stays: ")]
    return Case(matches.strip(), becomes.strip(), stays)


def optimized(text: str, pattern: str) -> tuple[str, dict[str, object]]:
    """The graph after that pattern alone, and what the pattern did."""
    model = _core.Model.parse(f"opset 25\n{text}\n")
    report = _core.optimize(model, target=TARGETS[pattern], only=[pattern, "dead_code"], positions=POSITIONS)
    done = next(one for one in report["patterns"] if one[0] == pattern)
    return model.text(), {"times": done[1], "reasons": done[3]}


def test_every_pattern_has_a_case() -> None:
    assert sorted(PATTERNS) == sorted(path.stem for path in CASES.glob("*.txt"))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_match_becomes_what_the_pattern_makes(pattern: str) -> None:
    case = case_of(pattern)
    text, did = optimized(case.matches, pattern)
    assert did["times"], did["reasons"]
    assert text[text.index("graph(") :].strip() == case.becomes


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_looks_alike_stays_for_a_reason(pattern: str) -> None:
    case = case_of(pattern)
    assert case.stays or pattern in NEVER_DECLINE, "a pattern needs a graph that it leaves alone"
    for reason, graph in case.stays:
        _, did = optimized(graph, pattern)
        assert not did["times"], graph
        assert reason in did["reasons"]


# ---------------------------------------------------------------------------------------------------- answers


class Feeds(NamedTuple):
    """Inputs of one size."""

    kind: str
    values: dict[str, np.ndarray]


def sizes_of(symbols: set[str]) -> Iterator[tuple[str, dict[str, int]]]:
    """A size for each name: several, one, none for samples, none at all; the last with numbers that are not finite."""
    yield "several", {name: BASE.get(name, 3) for name in symbols}
    yield "all true", {name: BASE.get(name, 3) for name in symbols}
    yield "one", dict.fromkeys(symbols, 1)
    yield "no sample", {name: 0 if name in ("b", "p") else BASE.get(name, 2) for name in symbols}
    yield "nothing", {name: 0 if name in BASE else 2 for name in symbols}
    yield "not finite", {name: BASE.get(name, 3) for name in symbols}


def values_of(dtype: str, shape: list[int], kind: str, draw: np.random.Generator) -> np.ndarray:
    if dtype == "bool":
        return np.asarray(draw.random(shape) < (1.0 if kind == "all true" else 0.6))
    if dtype.startswith("i"):
        return np.asarray(draw.integers(0, 1 if kind == "one" else 2, shape), DTYPES[dtype])  # also positions
    values = np.asarray(draw.standard_normal(shape))
    values.flat[::5], values.flat[2::7] = 0.0, -0.0
    if kind == "not finite":
        values.flat[1::9], values.flat[3::8], values.flat[5::11] = np.nan, np.inf, -np.inf
    return values.astype(DTYPES[dtype])


def all_feeds(program: Program, given: Program) -> Iterator[Feeds]:
    """Inputs without a shape have that of the graph that was changed."""
    shapes = {value.name: value.shape for value in given.inputs}
    for kind, sizes in sizes_of({*program.symbols, *given.symbols}):
        draw = np.random.default_rng(0)
        values = {}
        for value in program.inputs:
            if value.elements is None:
                shape = shapes[value.name] if value.shape == ("*",) else value.shape
                dims = [eval(dim, {}, sizes) for dim in shape]  # an expression of the names, from the case's own file
                values[value.name] = values_of(value.dtype, dims, kind, draw)
        yield Feeds(kind, values)


class Runner:
    """A model in one of the runtimes; None where it cannot be run."""

    def __init__(self, model: _core.Model, runtime: str) -> None:
        self.session: ort.InferenceSession | EvaluatorSession = (
            session_of(model) if runtime == "onnxruntime" else EvaluatorSession(model)
        )

    def run(self, feeds: Feeds) -> list[np.ndarray]:
        if isinstance(self.session, EvaluatorSession):
            tensors = {name: torch.from_numpy(value) for name, value in feeds.values.items()}
            return [output.numpy() for output in self.session.run(tensors)]
        outputs: list[np.ndarray] = self.session.run(
            None, {value.name: feeds.values[value.name] for value in self.session.get_inputs()}
        )
        return outputs


def session_of(model: _core.Model) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(_core.to_bytes(model), options, providers=["CPUExecutionProvider"])


def typed(program: Program) -> bytes | None:
    """The file of a graph; None if ONNX has no meaning for it."""
    try:
        model = _core.Model.parse(str(program))
        _core.infer_types(model)
        data = _core.to_bytes(model)
        onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    except (ExportGuardError, ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return data


def is_compared(runtime: str, feeds: Feeds, before: str, after: str) -> bool:
    """What docs/optimizer.md promises: not an empty Attention, not scores that are no numbers where a key is hidden.
    And a Reshape that reads 0 as a copy has no shape that can be told where a size is 0."""
    if runtime == "evaluator" and "com.microsoft" in after:
        return False
    if "GroupQueryAttention(" in after:  # keys that no query sees are not read
        return feeds.kind == "all true" or not any(value.dtype == np.bool_ for value in feeds.values.values())
    if feeds.kind in ("no sample", "nothing"):
        copies = any("Reshape(" in line and "allowzero=1" not in line for line in before.split("\n"))
        reads_nothing = "GatherND(" in before  # from no samples, at positions beyond the other axis
        return not copies and not reads_nothing and (runtime == "evaluator" or "Attention(" not in after)
    if feeds.kind == "not finite" and ("Attention(" in after or "Gelu(" in after):
        return runtime == "onnxruntime" and "Where(" not in before
    return True


def assert_same(got: list[np.ndarray], expected: list[np.ndarray], feeds: Feeds) -> None:
    for one, reference in zip(got, expected, strict=True):
        assert (one.dtype, one.shape) == (reference.dtype, reference.shape), feeds.kind
        if one.dtype.kind == "f":
            tolerance = TOLERANCES[one.dtype.name]
            np.testing.assert_allclose(one, reference, rtol=tolerance, atol=tolerance, err_msg=feeds.kind)
        elif feeds.kind != "not finite":  # ONNX leaves open which integer a NaN becomes
            np.testing.assert_array_equal(one, reference, err_msg=feeds.kind)


def assert_keeps_answers(program: Program, given: Program, target: str) -> bool:
    """Whether anything was changed, and the answers were compared."""
    data = typed(program)
    if data is None:
        return False
    before, after = _core.from_bytes(data), _core.from_bytes(data)
    written = before.text()
    try:
        _core.optimize(after, target=target, positions=POSITIONS)
    except ExportGuardError:
        return False  # a graph that no run gets through, found out early
    after.verify()
    assert [output[0] for output in after.outputs] == [output[0] for output in before.outputs]
    if after.text() == written:
        return False
    return compared((before, after), program, given)


def runner_of(model: _core.Model, runtime: str) -> Runner | None:
    try:
        return Runner(model, runtime)
    except RUN_ERRORS:
        return None


def runtimes_for(model: _core.Model, feeds: Feeds) -> list[str]:
    """onnxruntime divides by the number of heads, and reads the first key, without looking whether there is one."""
    is_empty = any(value.size == 0 for value in feeds.values.values())
    if is_empty and "Attention(" in model.text():
        return ["evaluator"]
    return [runtime for runtime in ("evaluator", "onnxruntime") if runner_of(model, runtime)]


def compared(models: tuple[_core.Model, _core.Model], program: Program, given: Program) -> bool:
    """Compares wherever the graph as it is runs, in both runtimes alike: one of them reads what is not there."""
    after = models[1].text()
    has_compared = False
    runners: dict[tuple[int, str], Runner] = {}

    def run(which: int, runtime: str, feeds: Feeds) -> list[np.ndarray]:
        if (which, runtime) not in runners:
            runners[which, runtime] = Runner(models[which], runtime)
        return runners[which, runtime].run(feeds)

    for feeds in all_feeds(program, given):
        runtimes = runtimes_for(models[0], feeds)
        try:
            expected = {runtime: run(0, runtime, feeds) for runtime in runtimes}
        except RUN_ERRORS:
            expected = {}
        if not expected or not are_alike(list(expected.values())):
            if feeds.kind == "several":
                return False
            continue
        for runtime, outputs in expected.items():
            if is_compared(runtime, feeds, models[0].text(), after):
                try:
                    got = run(1, runtime, feeds)
                except states.InvalidArgument as error:
                    if "GroupQueryAttention(" not in after or "running Gather" not in str(error):
                        raise
                    continue  # padding
                assert_same(got, outputs, feeds)
                has_compared = True
    return has_compared


def are_alike(results: list[Any]) -> bool:
    return all(
        one.shape == first.shape and np.allclose(one, first, rtol=1e-2, atol=1e-2, equal_nan=True)
        for outputs in results
        for one, first in zip(outputs, results[0], strict=True)
    )


@pytest.mark.thinned(3)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_graphs_that_look_alike_keep_their_answers(pattern: str) -> None:
    assert_look_alikes_keep_answers(pattern, MOST)


def assert_look_alikes_keep_answers(pattern: str, most: int | None) -> None:
    case = case_of(pattern)
    given = Program.parse(case.matches)
    target = TARGETS[pattern]
    assert assert_keeps_answers(given, given, target)
    stays = [Program.parse(graph) for _, graph in case.stays]
    drawn = list(look_alikes(given))
    random.Random(0).shuffle(drawn)
    for program, one in itertools.product([*stays, *drawn[:most]], {target, "portable"}):
        try:
            assert_keeps_answers(program, program if program in stays else given, one)
        except Exception as error:
            error.add_note(f"in {one}:\n{program}")
            raise


def main() -> None:
    """Compares every graph that looks like one of these patterns."""
    for pattern in sys.argv[1:] or PATTERNS:
        assert_look_alikes_keep_answers(pattern, None)
        print(pattern, flush=True)


if __name__ == "__main__":
    main()
