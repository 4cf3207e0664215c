"""Attention that a file writes out keeps its answers with every mask, of any shape, however added, whatever in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

import numpy as np
import onnx
import onnx.parser
import pytest
from onnxruntime import InferenceSession

import exportguard
from random_files import session_of

SIZES = {"B": 2, "Q": 4, "K": 5}
SHAPES = ("", "1", "K", "1,1", "1,K", "Q,1", "Q,K")
#: Of three heads, each with a mask of its own at the end; those stay as they are where one may be minus infinity.
SHAPES_OF_HEADS = (*SHAPES, "1,1,K", "B,1,1,K", "B,1,Q,1", "1,1,Q,K", "B,1,Q,K", "3,1,K", "3,Q,K", "B,3,Q,K")
SHAPES_OF_ONE_HEAD = (*SHAPES, "B,1,K", "1,Q,K", "B,Q,K")
#: From the scores %s and the mask %m to %a.
FORMS = {
    "added": "a = Add(m, s)",
    "subtracted": "n = Neg(m) a = Sub(s, n)",
    "added twice": "a1 = Add(m, s) a = Add(a1, m)",
    "chosen": "a1 = Add(s, m) a = Where(seen, a1, hidden)",
    "chosen before": "a1 = Where(seen, s, hidden) a = Add(a1, m)",
    "chosen twice": "a1 = Where(seen, s, hidden) h = Less(m, zero) a = Where(h, hidden, a1)",
    "times a number": "a1 = Add(s, m) a = Mul(a1, three)",
    "behind a softcap": "c1 = Div(s, three) c2 = Tanh(c1) c3 = Mul(c2, three) a = Add(c3, m)",
    "lifted": "a1 = Add(s, m) a = Max(a1, lowest)",
}
FACTORS = ("", "1", "K", "Q,1", "3,1,1", "B,3,1,1", "B,1,Q,1", "1,1,Q,K")
LOWEST = float(np.finfo(np.float32).min)


def file_of(mask: str, form: str, heads: str) -> onnx.ModelProto:
    """Of three heads, or with an empty `heads` of one."""
    axes = "0,1,3,2" if heads else "0,2,1"
    seen = "B,1,Q,K" if heads else "B,Q,K"
    return onnx.parser.parse_model(f"""
        <ir_version: 11, opset_import: ["": 23]>
        g(float[B,{heads}Q,8] q, float[B,{heads}K,8] k, float[B,{heads}K,8] v, bool[{seen}] seen,
          {f"float[{mask}]" if mask else "float"} m) => (float[B,{heads}Q,8] y)
        <float half = {{0.5}}, float three = {{3.0}}, float zero = {{0.0}}, float hidden = {{-inf}},
         float lowest = {{{LOWEST}}}>
        {{ x = Neg(k) t = Transpose<perm = [{axes}]>(x) p = MatMul(q, t) s = Mul(p, half)
           {form} w = Softmax<axis = -1>(a) y = MatMul(w, v) }}""")


def masks(shape: list[int], draw: np.random.Generator) -> Iterator[np.ndarray]:
    infinity = np.float32(np.inf)
    yield draw.standard_normal(shape)
    yield np.full(shape, -infinity)
    yield np.full(shape, LOWEST)
    yield np.where(draw.random(shape) < 0.6, -infinity, LOWEST)
    yield np.where(draw.random(shape) < 0.5, -infinity, draw.standard_normal(shape))
    yield np.where(draw.random(shape) < 0.2, infinity, 0)
    yield np.where(draw.random(shape) < 0.1, np.nan, 0)


def feeds(before: InferenceSession) -> Iterator[dict[str, np.ndarray]]:
    draw = np.random.default_rng(0)
    shapes = {value.name: [SIZES.get(dim, dim) for dim in value.shape] for value in before.get_inputs()}
    for chance, mask in zip((0.5, 0.5, 0.0, 0.5, 0.5, 1.0, 0.5), masks(shapes["m"], draw), strict=True):
        given = {name: draw.standard_normal(shapes[name], np.float32) for name in ("q", "k", "v")}
        yield {**given, "m": np.asarray(mask, np.float32), "seen": draw.random(shapes["seen"]) < chance}


def assert_keeps_answers(file: onnx.ModelProto, held: Iterable[np.ndarray] | None = None) -> str:
    """The text of what is made of it. `held` is what `m` holds, one after the other."""
    before = session_of(file.SerializeToString())
    model = exportguard.load(file.SerializeToString())
    model.optimize()
    after = session_of(model.to_bytes())
    for given, own in zip_longest(feeds(before), held or ()):
        given["m"] = given["m"] if own is None else own
        expected, got = before.run(None, given)[0], after.run(None, given)[0]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    return model.text()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mask", SHAPES_OF_HEADS)
def test_attention_keeps_its_answers_with_a_mask(mask: str, form: str) -> None:
    text = assert_keeps_answers(file_of(mask, FORMS[form], "3,"))
    assert " Attention(" in text or form == "lifted" or mask == "" or "3" in mask


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mask", SHAPES_OF_ONE_HEAD)
def test_attention_of_one_head_keeps_its_answers_with_a_mask(mask: str, form: str) -> None:
    text = assert_keeps_answers(file_of(mask, FORMS[form], ""))
    assert " Attention(" in text or form == "lifted" or mask == ""


@pytest.mark.parametrize("factor", FACTORS)
def test_attention_keeps_its_answers_with_a_factor(factor: str) -> None:
    shape = [SIZES.get(dim) or int(dim) for dim in factor.split(",") if dim]
    numbers = (np.full(shape, number, np.float32) for number in (-2, 0, -1e9, np.inf, -np.inf, np.nan, 1e-9))
    text = assert_keeps_answers(file_of(factor, "a = Mul(s, m)", "3,"), numbers)
    assert (" Attention(" in text) == ("K" not in factor and factor != "")
