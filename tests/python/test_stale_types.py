"""What a file says of sizes is not believed where it cannot be so: random graphs whose types tell of other sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import exportguard
from exportguard import _core
from test_optimizer import SIZES, feeds_of, graphs, run

NAMES = {  # how the file names the axes b and s between the inputs and the outputs
    "numbers of one example": {"b": 2, "s": 3},
    "numbers of one axis": {"b": 2},
    "the names of each other": {"b": "s", "s": "b"},
    "one name for both": {"b": "s"},
    "one new name for both": {"b": "n", "s": "n"},
}


def renamed(data: bytes, names: dict[str, int | str], producer: str) -> bytes:
    """The model with other sizes in what it says of all values but its inputs."""
    model = onnx.load_from_string(data)
    model.producer_name = producer
    for value in (*model.graph.value_info, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            name = names.get(dim.dim_param)
            if isinstance(name, int):
                dim.dim_value = name
            elif name is not None:
                dim.dim_param = name
    return model.SerializeToString()


@given(
    text=graphs(),
    sizes=st.sampled_from(SIZES),
    names=st.sampled_from([*NAMES.values()]),
    producer=st.sampled_from(["exportguard", "another"]),
)
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_random_graph_with_stale_types_keeps_its_outputs(
    text: str, sizes: dict[str, int], names: dict[str, int | str], producer: str
) -> None:
    before = _core.Model.parse(text)
    loaded = exportguard.load(renamed(_core.to_bytes(before), names, producer))
    loaded.optimize()
    feeds = feeds_of(sizes)
    for expected, got in zip(run(before, feeds), run(loaded._core, feeds), strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-3 if got.dtype == np.float16 else 1e-5, atol=1e-6)


FREED = """
opset 20
graph(%x: f32[b,4]):
  %a: f32[2,4] = other::Unknown(%x)
  %n: f32[2,4] = Neg(%x)
  %s: i64[2] = Shape(%n)
  %e: f32[2,4] = Expand(%n, %s)
  %t: i64[2] = Shape(%a)
  return (%s, %e, %t)
"""


@pytest.mark.parametrize("producer", ["exportguard", "another"])
def test_a_file_that_contradicts_itself_once_is_not_believed_where_nothing_tells(producer: str) -> None:
    loaded = exportguard.load(renamed(_core.to_bytes(_core.Model.parse(FREED)), {}, producer))
    loaded.optimize()
    assert "Shape(%a)" in loaded.text()
    assert "{2, 4}" not in loaded.text()


def test_a_branch_that_no_run_takes_does_not_hide_the_types_behind_it() -> None:
    wrong = """
opset 20
graph(%x: f32[b,4], %p: bool[]):
  %w: f32[?] = If(%p) {then_branch=graph():
      %t = Transpose(%x) {perm=[0, 1, 2]}
      return (%t), else_branch=graph():
      return (%x)}
  %n: f32[2,4] = Neg(%x)
  %s: i64[2] = Shape(%n)
  return (%w, %s)
""".replace("f32[?]", "f32[*]")
    loaded = exportguard.load(_core.to_bytes(_core.Model.parse(wrong)))
    loaded.optimize()
    assert "{2, 4}" not in loaded.text()
