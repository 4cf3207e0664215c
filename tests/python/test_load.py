"""Models that are read: the same again after writing, and errors for files that nobody should trust."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import numpy
import onnx
import onnx.parser
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import exportguard
from exportguard import _core
from exportguard.errors import ExportGuardError, FileError

TEXTS = {
    "weights": """
opset 22
metadata "made by" = "a test"
graph(%x: f32[batch,2], %w: f32[2,3] = {1, 2, 3, 4, 5, 6}, %q: i4[3] = {-8, 7, 1}, %u: u2[3] = {3, 0, 2},
      %h: f16[2] = {0.5, nan}, %s: string[2] = {"a", "ä"}, %e: f32[0,2] = {}):
  %m: f32[batch,3] = MatMul(%x, %w)
  %l: f32[batch,3] = LeakyRelu(%m) {alpha=0.5}
  %y: f32[batch,3] = Clip(%l, _, %l)
  return (%y as logits, %x)
""",
    "branches": """
opset 22
graph(%p: bool[], %x: f32[n]):
  %h: f32[n] = Neg(%x)
  %y: f32[n] = If(%p) {then_branch=graph():
      %t: f32[n] = Relu(%h)
      return (%t), else_branch=graph():
      return (%h)}
  return (%y)
""",
    "kinds": """
opset 22
opset com.microsoft 1
graph(%x: f32[n + 1,*2*n], %s: seq(f32[n]), %o: optional(f32[3])):
  %a = com.microsoft::Gelu(%x) {approximate="tanh", list=[1, 2], floats=[0.5, 1.5], texts=["a", "b"], alpha=0.25}
  %t: f32[*] = Constant() {value=f32[2]{1.0, inf}}
  %b: f32[n] = SequenceAt(%s, %t)
  return (%b)
""".replace("*2*n", "2*n"),
    "function": """
opset 22
opset local 1
graph(%x: f32[n]):
  %y: f32[n] = local::Twice(%x)
  return (%y)
function local::Twice(%a) opsets(22):
  %b = Add(%a, %a)
  return (%b)
""",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_is_written_reads_back_the_same(text: str, tmp_path: Path) -> None:
    model = exportguard.load(_core.to_bytes(_core.Model.parse(text)))
    again = exportguard.load(model.to_bytes())
    assert again.text(sources=True) == model.text(sources=True)
    _core.save(model._core, tmp_path / "m.onnx", external_data="always", min_external_bytes=1)
    assert exportguard.load(tmp_path / "m.onnx").text(sources=True) == model.text(sources=True)
    assert again._core.metadata == model._core.metadata


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 64)
        self.down = torch.nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.silu(self.up(x))) + x


def test_a_converted_model_keeps_its_sources_and_sizes(tmp_path: Path) -> None:
    model = exportguard.to_onnx(Gated(), (torch.rand(2, 8),), dynamic_shapes=({0: "batch"},))
    path = model.save(tmp_path / "gated.onnx", external_data="always")
    loaded = exportguard.load(path)
    assert loaded.to_bytes() == model.to_bytes()
    assert "test_load.py:" in loaded.text(sources=True)
    assert loaded.opset == model.opset
    assert [value.shape for value in loaded.inputs] == [("batch", 8)]


def test_external_data_is_mapped_and_survives_the_removal_of_the_file(tmp_path: Path) -> None:
    path = exportguard.to_onnx(Gated(), (torch.rand(2, 8),)).save(tmp_path / "m.onnx", external_data="always")
    before = exportguard.load(path)
    expected = before.to_bytes()
    (tmp_path / "m.onnx.data").unlink()
    assert before.to_bytes() == expected


def model_of(*nodes: onnx.NodeProto, initializers: tuple[TensorProto, ...] = (), **more: object) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(list(nodes), "main", [x], [y], initializer=list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], **more)


def external(location: str, **more: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in dict(location=location, **more).items():
        tensor.external_data.add(key=key, value=value)
    return tensor


USES_W = helper.make_node("Add", ["x", "w"], ["y"], name="sum")

HOSTILE_DATA = {
    "outside": (external("../secret"), "outside the model's folder"),
    "absolute": (external("/etc/passwd"), "outside the model's folder"),
    "link": (external("link"), "outside the model's folder"),
    "missing": (external("nothing"), "cannot read .*nothing"),
    "folder": (external("folder"), "not a file"),
    "short": (external("data", offset="4", length="8"), "takes 8 bytes from byte 4 of 'data', which has 8"),
    "far": (external("data", offset="9223372036854775807"), "starts at byte"),
    "negative": (external("data", offset="-4"), "must be a number from 0 on, got '-4'"),
    "text": (external("data", offset="4x"), "must be a number from 0 on, got '4x'"),
    "wrong size": (external("data", length="4"), r"f32\[2\] takes 8 bytes, got 4"),
    "no place": (external(""), "no location"),
}


@pytest.mark.parametrize(("tensor", "text"), HOSTILE_DATA.values(), ids=HOSTILE_DATA)
def test_external_data_that_is_not_what_it_should_be_is_refused(tensor: TensorProto, text: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(8))
    (folder / "data").write_bytes(bytes(8))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "m.onnx").write_bytes(model_of(USES_W, initializers=(tensor,)).SerializeToString())
    with pytest.raises(FileError, match=f"tensor 'w'.*{text}"):
        exportguard.load(folder / "m.onnx")


def raw(data_type: int, dims: list[int], data: bytes) -> TensorProto:
    return TensorProto(name="w", data_type=data_type, dims=dims, raw_data=data)


def sparse(indices: list[int], dims: list[int]) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(numpy.ones(len(indices), numpy.float32), "w")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(numpy.array(indices, numpy.int64)), dims)


def with_sparse(tensor: onnx.SparseTensorProto) -> onnx.ModelProto:
    model = model_of(USES_W)
    model.graph.sparse_initializer.append(tensor)
    return model


def recursive() -> onnx.ModelProto:
    body = [helper.make_node("F", ["a"], ["b"], domain="local")]
    function = helper.make_function("local", "F", ["a"], ["b"], body, [helper.make_opsetid("local", 1)])
    return model_of(helper.make_node("F", ["x"], ["y"], domain="local"), functions=[function])


HOSTILE_MODELS = {
    "undefined": (model_of(helper.make_node("Neg", ["z"], ["y"], name="n")), r"node n \(Neg\) .* reads 'z'"),
    "cycle": (
        model_of(helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])),
        "reads 'b', which nothing before it defines",
    ),
    "twice": (model_of(helper.make_node("Neg", ["x"], ["x"])), "defines 'x' twice"),
    "no output": (model_of(helper.make_node("Neg", ["x"], ["a"])), "output 'y' of graph 'main' is defined nowhere"),
    "huge": (model_of(USES_W, initializers=(raw(1, [1 << 40, 1 << 40], b""),)), "cannot have the sizes"),
    "negative size": (model_of(USES_W, initializers=(raw(1, [-1], b""),)), "cannot have the sizes"),
    "too few": (model_of(USES_W, initializers=(raw(1, [3], bytes(8)),)), r"f32\[3\] takes 12 bytes, got 8"),
    "dtype": (model_of(USES_W, initializers=(raw(99, [1], bytes(4)),)), "99 is not an element type"),
    "sparse range": (with_sparse(sparse([7], [4])), "out of range"),
    "sparse bomb": (with_sparse(sparse([7], [1 << 33])), "at most 1 GiB"),
    "recursion": (recursive(), "function local::F calls itself"),
}


@pytest.mark.parametrize(("model", "text"), HOSTILE_MODELS.values(), ids=HOSTILE_MODELS)
def test_a_model_that_is_malformed_is_refused(model: onnx.ModelProto, text: str) -> None:
    with pytest.raises(FileError, match=text):
        exportguard.load(model.SerializeToString())


NAMES_OF_SIZES = ("batch size", "/model/Concat_dim_0", "Concatonnx::Shape_67_dim_0", "1a", "?", "größe", "a[0]", "a.b")


@pytest.mark.parametrize("name", NAMES_OF_SIZES)
def test_a_size_keeps_any_name_that_a_file_gives_it(name: str) -> None:
    model = model_of(helper.make_node("Neg", ["x"], ["y"]))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = name
    loaded = exportguard.load(model.SerializeToString())
    loaded.optimize()
    graph = onnx.load_from_string(loaded.to_bytes()).graph
    names = [value.type.tensor_type.shape.dim[0].dim_param for value in (*graph.input, *graph.output)]
    assert names == [name, name]


def test_sizes_of_other_names_are_not_equal() -> None:
    """`a::b` and what its symbol may look like are two sizes: a Reshape from one to the other stays."""
    shapes = [["a::b"], ["_text.a.3a..3a.b"]]
    x, like = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(("x", "like"), shapes, strict=True)
    )
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows"])
    nodes = [helper.make_node("Shape", ["like"], ["to"]), helper.make_node("Expand", ["x", "to"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "main", [x, like], [y]), ir_version=10)
    loaded = exportguard.load(model.SerializeToString())
    loaded.optimize()
    assert "Expand(" in loaded.text()


def test_the_shape_of_an_output_may_be_told_among_the_values() -> None:
    """That this cannot be so, as the operator tells, makes what is told of other values doubtful as well."""
    nodes = [helper.make_node("Softmax", ["x"], ["y"]), helper.make_node("Foreign", ["x"], ["z"], domain="own")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    told = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("y", "z")]
    nodes += [helper.make_node("Shape", ["z"], ["to"]), helper.make_node("Reshape", ["y", "to"], ["r"])]
    r = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "main", [x], [y, r], value_info=told)
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("own", 1)]
    loaded = exportguard.load(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    loaded.optimize()
    assert "%y: f32[b,s]" in loaded.text()
    assert "[2,3]" not in loaded.text()
    assert "Shape(%z)" in loaded.text()


def test_the_body_of_a_scan_is_given_slices_of_its_operands() -> None:
    """What the body gives then has their sizes, not those that a file was left with after an axis was freed."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 22]>
        g(float[b,s,4] x) => (int64[3] sizes) <float[1,1,4] z>
        { z = Scan<num_scan_inputs = 1, scan_input_axes = [2], scan_output_axes = [2],
                   body = body(float[] part) => (float[] out) { out = Relu(part) }>(x)
          sizes = Shape(z) }""")
    body = next(attribute.g for attribute in model.graph.node[0].attribute if attribute.name == "body")
    for value in (*body.input, *body.output):
        value.type.tensor_type.ClearField("shape")
    loaded = exportguard.load(model.SerializeToString())
    loaded.optimize()
    x = numpy.ones((2, 3, 4), numpy.float32)
    session = onnxruntime.InferenceSession(loaded.to_bytes(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": x})[0].tolist() == [2, 3, 4]


def test_a_size_below_zero_is_like_no_other() -> None:
    model = model_of(helper.make_node("Neg", ["x"], ["y"]))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "-1"
    graph = onnx.load_from_string(exportguard.load(model.SerializeToString()).to_bytes()).graph
    assert graph.input[0].type.tensor_type.shape.dim[0].WhichOneof("value") is None


def test_a_map_is_refused_with_what_to_do_instead() -> None:
    model = model_of(helper.make_node("Neg", ["x"], ["y"]))
    of_map = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    model.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(of_map))
    with pytest.raises(FileError, match=r"output 'y' is a sequence of maps .*'zipmap': False"):
        exportguard.load(model.SerializeToString())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot load .*none\.onnx.*No such file"):
        exportguard.load(tmp_path / "none.onnx")


def test_damaged_bytes_give_errors_or_a_model_and_never_a_crash() -> None:
    whole = _core.to_bytes(_core.Model.parse(TEXTS["weights"])) + b""
    for end in range(len(whole)):
        with pytest.raises(ExportGuardError):
            exportguard.load(whole[:end]).to_bytes()
    draw = random.Random(0)
    for text in TEXTS.values():
        original = _core.to_bytes(_core.Model.parse(text))
        for _ in range(500):
            damaged = bytearray(original)
            for _ in range(draw.randint(1, 4)):
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
            try:
                exportguard.load(bytes(damaged)).text()
            except ExportGuardError:
                continue


def test_a_name_that_is_no_text_is_refused() -> None:
    whole = model_of(helper.make_node("Neg", ["x"], ["y"])).SerializeToString()
    with pytest.raises(FileError, match="not UTF-8"):
        exportguard.load(whole.replace(b"\x01x", b"\x01\xf5"))


def test_a_sparse_initializer_is_read_dense() -> None:
    text = exportguard.load(with_sparse(sparse([2, 0], [4])).SerializeToString()).text()
    assert "f32[4] = {1.0, 0.0, 1.0, 0.0}" in text


def test_a_function_with_attributes_becomes_one_for_each_set_of_values() -> None:
    body = [helper.make_node("Elu", ["a"], ["b"])]
    body[0].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    function = helper.make_function("local", "F", ["a"], ["b"], body, [helper.make_opsetid("", 22)], ["slope"])
    calls = [
        helper.make_node("F", ["x"], ["p"], domain="local", slope=0.5),
        helper.make_node("F", ["p"], ["q"], domain="local", slope=2.0),
        helper.make_node("F", ["q"], ["r"], domain="local", slope=0.5),
        helper.make_node("F", ["r"], ["y"], domain="local"),
    ]
    model = model_of(*calls, functions=[function])
    model.opset_import.append(helper.make_opsetid("local", 1))
    text = exportguard.load(model.SerializeToString()).text()
    assert text.count("function local::") == 3
    assert all(call in text for call in ("{alpha=0.5}", "{alpha=2.0}", "= Elu(%a)\n"))
    loaded = exportguard.load(model.SerializeToString()).to_bytes()
    onnx.checker.check_model(loaded)


def test_an_input_with_a_default_may_be_given_or_left_out(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["w"], ["same"]), helper.make_node("Mul", ["x", "same"], ["y"])]
    weight = numpy_helper.from_array(numpy.ones(2, numpy.float32), "w")
    model = model_of(*nodes, initializers=(weight,), ir_version=8)
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, ["k"]))
    loaded = exportguard.load(model.SerializeToString())
    loaded.optimize()
    path = loaded.save(tmp_path / "m.onnx", external_data="always")
    again = exportguard.load(path)
    assert again.text() == loaded.text()
    assert "Identity" not in again.text()
    onnx.checker.check_model(again.to_bytes(), full_check=True)
    session = onnxruntime.InferenceSession(path)
    x, given = numpy.ones(2, numpy.float32), numpy.full(1, 5, numpy.float32)
    assert session.run(None, {"x": x})[0].tolist() == [1, 1]
    assert session.run(None, {"x": x, "w": given})[0].tolist() == [5, 5]
    assert next(iter(again.run({"x": torch.ones(2)}).values())).tolist() == [1, 1]


def test_files_in_which_every_weight_is_an_input_have_constants() -> None:
    weight = numpy_helper.from_array(numpy.ones(2, numpy.float32), "w")
    model = model_of(USES_W, initializers=(weight,), ir_version=3)
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    assert "DefaultInput" not in exportguard.load(model.SerializeToString()).text()


def test_an_output_whose_type_only_the_file_tells_keeps_it() -> None:
    nodes = [helper.make_node("Unknown", ["x"], ["a"], domain="other"), helper.make_node("Identity", ["a"], ["y"])]
    model = model_of(*nodes)
    model.opset_import.append(helper.make_opsetid("other", 1))
    loaded = exportguard.load(model.SerializeToString())
    loaded.optimize()
    assert onnx.load_from_string(loaded.to_bytes()).graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT


@pytest.mark.parametrize("operator", ["NonZero", "Cast"])
def test_a_node_without_its_operand_ends_no_process(operator: str) -> None:
    """What folds constants asked an operand that is left out for its shape and dtype."""
    attributes = {"to": TensorProto.INT64} if operator == "Cast" else {}
    node = helper.make_node(operator, [""], ["y"], **attributes)
    result = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    model = helper.make_model(helper.make_graph([node], "g", [], [result]))
    with contextlib.suppress(ExportGuardError):
        exportguard.load(model.SerializeToString()).optimize()
