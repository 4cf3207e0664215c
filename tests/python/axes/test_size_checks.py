"""A file stops at sizes at which, as its report says, it would not be the model.

`python test_size_checks.py` prints of every program at how many sizes its file is right and at how many it stops.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from random_programs import model_of
from transformers import BertConfig, BertModel

from exportguard import ExportOptions, OnnxModel, load, make_dynamic_cache, to_onnx
from exportguard.errors import InvalidArgumentError
from verdicts import verdicts

#: Tests of two sizes, with an example for each answer.
TESTS: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "h == w": ((5, 5), (5, 6)),
    "h != w + 1": ((5, 5), (6, 5)),
    "h < w": ((5, 6), (6, 5)),
    "h > 3": ((5, 5), (2, 5)),
    "h > 3 and w > 3": ((5, 5), (2, 5)),
    "h > 5 or w > 5": ((6, 2), (5, 4)),
    "not (h == 4 and w == 4)": ((5, 4), (4, 4)),
    "h % 3 == 1": ((4, 5), (5, 5)),
    "(h + 2 * w) % 4 != 3": ((4, 4), (5, 5)),
    "h // 2 == w": ((6, 3), (6, 4)),
    "h * w > 30": ((6, 6), (3, 3)),
    "min(h, w) > 3": ((4, 5), (5, 3)),
    "max(h, w) <= 6": ((4, 5), (7, 3)),
    "h % 2 == 0 and (w > 4 or h > 6)": ((4, 5), (5, 5)),
    "2 * h - w == 4": ((4, 4), (5, 5)),
    "h ** 2 > w ** 2 + 9": ((6, 3), (3, 3)),
}
#: What is behind the answers: two results, or one and what the model refuses.
BODIES = {
    "two": "x * 2 if {test} else x.sin() + 1",
    "refused otherwise": "x * 2 if {test} else self.refuse(h, w)",
}
SHAPES = [(3, h, w) for h, w in itertools.product((1, 2, 3, 4, 5, 6, 7, 9), repeat=2)]
_CLASS = """
import torch


class Model(torch.nn.Module):
    def refuse(self, h, w):
        raise ValueError(f"{h} and {w}")

    def forward(self, x):
        h, w = x.shape[-2:]
        return """


def model_with(test: str, body: str) -> torch.nn.Module:
    return model_of(_CLASS + BODIES[body].format(test=test) + "\n", "/size checks.py")


def exported(model: torch.nn.Module, example: tuple[int, int], **options: Any) -> OnnxModel:
    shapes = ({0: "batch", 1: "h", 2: "w"},)
    return to_onnx(model, (torch.randn(2, *example),), dynamic_shapes=shapes, on_fixed_axis="warn", **options)


def nodes_of(file: OnnxModel) -> list[onnx.NodeProto]:
    return [*onnx.load_from_string(file.to_bytes()).graph.node]


CASES = [
    *((test, answer, "two") for test, answer in itertools.product(TESTS, (0, 1))),
    *((test, 0, "refused otherwise") for test in TESTS),
]


@pytest.mark.parametrize(("test", "answer", "body"), CASES)
@pytest.mark.thinned(3)
def test_a_file_is_right_or_stops(test: str, answer: int, body: str) -> None:
    model = model_with(test, body)
    file = exported(model, TESTS[test][answer])
    found = verdicts(model, file, SHAPES)
    assert not found["wrong"] + found["answers"]
    assert not (found["stops"] and all(axis.kept for axis in file.axes))
    assert found["right"]
    assert found["stops"] + found["both stop"]
    again = load(file.to_bytes())
    again.optimize()
    assert verdicts(model, again, SHAPES) == found


@pytest.mark.parametrize("test", ["h == w", "h > 5", "(h + w) % 3 == 0"])
@pytest.mark.parametrize("place", ["behind no", "behind yes", "behind both"])
def test_conditions_of_a_branch_are_asked_for_in_it(test: str, place: str) -> None:
    asserted = f"        assert {test}, (h, w)\n"
    first, second = place != "behind no", place != "behind yes"
    source = (
        f"{_CLASS.removesuffix('return ')}if h * 2 > w + 3:\n    {asserted * first}            return x * 2\n"
        f"{asserted * second}        return x.sin()\n"
    )
    model = model_of(source, f"/size checks {place}.py")
    file = exported(model, (6, 6), rewrite="auto")
    found = verdicts(model, file, SHAPES)
    assert not found["wrong"] + found["answers"]
    assert not (found["stops"] and all(axis.kept for axis in file.axes))
    assert found["right"]
    assert found["both stop"]


def test_without_checks_it_answers_otherwise() -> None:
    model = model_with("h > 3", "two")
    found = verdicts(model, exported(model, (5, 5), options=ExportOptions(check_sizes=False)), SHAPES)
    assert found["wrong"]
    assert not found["stops"]


def test_what_a_runtime_says_names_the_condition() -> None:
    file = exported(model_with("h == w", "refused otherwise"), (5, 5))
    with pytest.raises(RuntimeError, match="only sizes with h == w"):
        file.run({"x": torch.randn(2, 5, 6)})


@pytest.mark.parametrize("target", ["onnx", "onnxruntime-cpu", "onnxruntime-cuda"])
@pytest.mark.parametrize("opset", [18, 24])
def test_every_opset_and_target(target: Any, opset: int) -> None:
    model = model_with("h % 3 == 1", "two")
    assert not verdicts(model, exported(model, (4, 5), opset=opset, options=ExportOptions(target=target)), SHAPES)[
        "wrong"
    ]


def test_a_model_that_takes_every_size_has_no_check() -> None:
    model = model_with("h == h", "two")
    assert [node.op_type for node in nodes_of(exported(model, (4, 5)))] == ["Mul"]


class Several(torch.nn.Module):
    """Reads the tokens, and pictures of some sizes."""

    def forward(self, pictures: torch.Tensor, tokens: torch.Tensor, flags: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if pictures.shape[2] > 4:
            pictures = pictures * 2
        return pictures, tokens + 1, flags


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float16, torch.bool, torch.uint8])
def test_the_smallest_input_is_handed_through(dtype: torch.dtype) -> None:
    inputs = (torch.randn(1, 3, 6, 6), torch.ones(4).to(torch.int32), torch.ones(2).to(dtype))
    file = to_onnx(Several().eval(), inputs, dynamic_shapes=({2: "h"}, None, None), on_fixed_axis="warn")
    (check,) = [node for node in nodes_of(file) if node.name.startswith("only sizes")]
    assert (check.op_type, check.input[0]) == ("Reshape", "flags")
    names = ("pictures", "tokens", "flags")
    got = [*file.run(dict(zip(names, inputs, strict=True))).values()]
    assert torch.equal(got[2], inputs[2])
    small = (torch.randn(1, 3, 3, 6), *inputs[1:])
    with pytest.raises(RuntimeError, match="only sizes with h > 4"):
        file.run(dict(zip(names, small, strict=True)))


def test_no_rows_are_handed_through(tmp_path: Path) -> None:
    model = model_with("h > 3", "two")
    path = tmp_path / "model.onnx"
    exported(model, (5, 5)).save(path)
    file = load(path)
    assert file.run({"x": torch.zeros(0, 5, 5)})["output_0"].shape == (0, 5, 5)
    with pytest.raises(RuntimeError, match="only sizes"):
        file.run({"x": torch.zeros(0, 3, 5)})


def test_more_positions_than_a_model_has_are_named() -> None:
    config = BertConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=20,
        max_position_embeddings=12,
    )  # fmt: skip
    model = BertModel(config).eval()
    shapes = {"input_ids": {0: "batch", 1: "seq"}}
    file = to_onnx(model, kwargs={"input_ids": torch.ones(2, 5, dtype=torch.int64)}, dynamic_shapes=shapes)
    assert all(axis.kept for axis in file.axes)
    file.run({"input_ids": torch.ones(1, 12, dtype=torch.int64)})
    with pytest.raises(RuntimeError, match="only sizes with seq <= 12"):
        file.run({"input_ids": torch.ones(1, 13, dtype=torch.int64)})


#: What a model does of a single entry or none: torch notes no guard, or an operator of ONNX answers.
AT_ONE = {
    "asserted": "        assert h >= 2\n        return x * 2\n",
    "raised": "        if h == 1:\n            raise ValueError(h)\n        return x.sin()\n",
    "windows": "        return x.unfold(1, 2, 1)\n",
    "squeezed": "        return x.squeeze(1)\n",
    "none is read": "        assert h >= 2\n        return torch.ones(2)\n",
    "rest of one": "        torch._check(h % 3 == 1)\n        return x * 2\n",
}


@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
@pytest.mark.parametrize("body", AT_ONE.values(), ids=AT_ONE)
@pytest.mark.thinned(1)
def test_what_is_refused_of_a_single_entry(body: str, rewrite: Any) -> None:
    model = model_of(_CLASS.removesuffix("        return ") + body, "/size checks at one.py")
    file = exported(model, (7, 5), rewrite=rewrite)
    for h in (1, 2, 4, 5, 7):
        x = torch.randn(3, h, 4)
        try:
            expected = model(x)
        except (AssertionError, ValueError, RuntimeError):
            expected = None
        try:
            (got,) = file.run({"x": x}).values()
        except RuntimeError:
            assert expected is None or expected.dim() < 3, h
            continue
        assert expected is not None, h
        torch.testing.assert_close(got, expected)


class Doubles(torch.nn.Module):
    """Does something else for the first token."""

    def forward(self, x: torch.Tensor, past_key_values: Any) -> torch.Tensor:
        is_first = past_key_values.get_seq_length() == 0
        keys, _ = past_key_values.update(x[:, None], x[:, None], 0)
        return (keys * 2 if is_first else keys).sum(2)


def test_an_empty_cache_that_is_another_way() -> None:
    cache = make_dynamic_cache([(torch.randn(2, 1, 4, 3), torch.randn(2, 1, 4, 3))])
    shapes = {"x": {1: "seq"}, "past_key_values": {2: "past"}}
    file = to_onnx(
        Doubles().eval(), kwargs={"x": torch.randn(2, 3, 3), "past_key_values": cache}, dynamic_shapes=shapes
    )
    names = [value.name for value in file.inputs]
    file.run(dict(zip(names, (torch.randn(2, 3, 3), *[torch.randn(2, 1, 2, 3)] * 2), strict=True)))
    with pytest.raises(RuntimeError, match="only sizes with past >= 1"):
        file.run(dict(zip(names, (torch.randn(2, 3, 3), *[torch.randn(2, 1, 0, 3)] * 2), strict=True)))


def test_no_rows_may_follow_the_check() -> None:
    """onnxruntime ends the process at InstanceNormalization of an empty tensor that a Gather has made."""
    model = model_of(
        _CLASS.removesuffix("        return ") + "        assert h > 1 or w > 1\n"
        "        return torch.nn.functional.group_norm(x, 1)\n",
        "/size checks of none.py",
    )
    shapes = ({0: "n", 1: "m"},)
    file = to_onnx(model, (torch.randn(3, 5),), dynamic_shapes=shapes)
    assert any(node.name.startswith("only sizes") for node in nodes_of(file))
    for sizes in ((3, 5), (2, 0), (3, 0)):
        assert file.run({"x": torch.zeros(sizes)})["output_0"].shape == sizes


def test_it_is_a_flag() -> None:
    with pytest.raises(InvalidArgumentError, match="check_sizes"):
        ExportOptions(check_sizes="no")  # type: ignore[arg-type]


if __name__ == "__main__":
    for test, answer, body in CASES:
        program = model_with(test, body)
        print(f"{test}, {answer}, {body}: {dict(verdicts(program, exported(program, TESTS[test][answer]), SHAPES))}")
