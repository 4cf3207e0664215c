"""The first node that diverges: faults planted at random are named, right models have none, and reports can be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy
import onnx
import pytest
import torch
from onnx import TensorProto, numpy_helper
from torch._higher_order_ops import while_loop

import exportguard
from exportguard import DivergenceOptions, OnnxModel, Tolerance, _core
from exportguard.command_line import main
from exportguard.conversion import convert
from exportguard.reading import Exported, read
from exportguard.request import ExportOptions, ExportRequest
from exportguard.tracing import exported_module
from exportguard.validation import divergence
from exportguard.validation.tensor_files import save_tensors
from fault_generator import Generated, generated
from fault_models import FAMILIES, MORE_FAMILIES
from graph_faults import KINDS, planted

OPSET = 23


@dataclass(frozen=True)
class Converted:
    exported: Exported
    model: OnnxModel
    proto: onnx.ModelProto
    inputs: dict[str, torch.Tensor]


def converted(family: str, layers: int, optimize: bool = True) -> Converted:
    torch.manual_seed(7)
    module, args, shapes = {**FAMILIES, **MORE_FAMILIES}[family](layers)
    exported = exported_module(ExportRequest.of(module, args, None, dynamic_shapes=shapes, options=ExportOptions()))
    model = convert(read(exported), opset=OPSET, options=ExportOptions(), optimize=optimize)
    inputs = {value.name: tensor for value, tensor in zip(model.inputs, args, strict=True)}
    return Converted(exported, model, onnx.load_from_string(model.to_bytes()), inputs)


@pytest.fixture(scope="module", params=[*FAMILIES])
def subject(request: pytest.FixtureRequest) -> Converted:
    return converted(request.param, 2)


@pytest.fixture(scope="module", params=[*FAMILIES])
def plain_subject(request: pytest.FixtureRequest) -> Converted:
    return converted(request.param, 2, optimize=False)


def outputs_change(right: Converted, wrong: bytes) -> bool:
    """Whether the fault can be seen at all on these inputs."""
    try:
        got = exportguard.load(wrong).run(right.inputs, runner="evaluator")
    except exportguard.ExportGuardError:
        return True
    expected = right.model.run(right.inputs, runner="evaluator")
    found = exportguard.compare_outputs(list(expected), list(expected.values()), list(got.values()))
    return not all(output.agrees for output in found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_planted_fault_is_named_beside_the_program(subject: Converted, kind: str, seed: int) -> None:
    result = planted(subject.proto, kind, seed)
    if result is None:
        return  # the family has no such node
    wrong, fault = result
    if not outputs_change(subject, wrong.SerializeToString()):
        return
    report = exportguard.find_divergence(subject.exported.program, wrong.SerializeToString(), subject.inputs)
    assert report.first is not None, str(report)
    assert fault.is_named_by(report.first.node.outputs), f"{fault}\n{report}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_fault_is_named_beside_another_model(plain_subject: Converted, kind: str) -> None:
    result = planted(plain_subject.proto, kind, 3)
    if result is None:
        return
    wrong, fault = result
    if not outputs_change(plain_subject, wrong.SerializeToString()):
        return
    report = exportguard.compare(plain_subject.model, wrong.SerializeToString(), plain_subject.inputs)
    assert report.first is not None, str(report)
    assert fault.is_named_by(report.first.node.outputs), f"{fault}\n{report}"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_fault_is_planted_somewhere(family: str) -> None:
    protos = [converted(family, 1, optimize).proto for optimize in (True, False)]
    assert sum(planted(proto, kind, 0) is not None for proto in protos for kind in KINDS) >= 5


def test_a_right_model_has_no_divergence(subject: Converted) -> None:
    report = exportguard.find_divergence(subject.exported.program, subject.model, subject.inputs)
    assert report.agrees, str(report)
    assert report.aligned > 0.5 * report.nodes
    assert str(report).startswith("no divergence: 1 outputs agree")


def test_an_optimized_model_agrees_with_the_plain_one(subject: Converted, plain_subject: Converted) -> None:
    if [value.name for value in subject.model.inputs] != [value.name for value in plain_subject.model.inputs]:
        return
    if subject.proto.graph.output[0].type != plain_subject.proto.graph.output[0].type:
        return  # of other families
    assert exportguard.compare(plain_subject.model, subject.model, subject.inputs).agrees


def test_a_module_is_exported_for_the_comparison() -> None:
    module, args, shapes = FAMILIES["decoder"](1)
    model = exportguard.to_onnx(module, args, dynamic_shapes=shapes)
    report = exportguard.find_divergence(module, model, (torch.randint(0, 11, (3, 4)),), dynamic_shapes=shapes)
    assert report.agrees, str(report)


def test_onnxruntime_runs_the_model_that_is_looked_at() -> None:
    subject = converted("decoder", 1)
    result = planted(subject.proto, "weight", 1)
    assert result is not None
    wrong, fault = result
    options = DivergenceOptions(runner="onnxruntime")
    report = exportguard.find_divergence(
        subject.exported.program, wrong.SerializeToString(), subject.inputs, options=options
    )
    assert report.first is not None
    assert fault.is_named_by(report.first.node.outputs)
    assert exportguard.find_divergence(subject.exported.program, subject.model, subject.inputs, options=options).agrees


def test_little_is_held_of_either_side() -> None:
    subject = converted("encoder", 2)
    options = DivergenceOptions(window=1)
    assert exportguard.find_divergence(subject.exported.program, subject.model, subject.inputs, options=options).agrees
    for runner in ("evaluator", "onnxruntime"):
        result = planted(subject.proto, "epsilon", 0)
        assert result is not None
        wrong, fault = result
        report = exportguard.find_divergence(
            subject.exported.program,
            wrong.SerializeToString(),
            subject.inputs,
            options=DivergenceOptions(window=1, runner=runner),  # type: ignore[arg-type]
        )
        assert report.first is not None
        assert fault.is_named_by(report.first.node.outputs)


@pytest.mark.parametrize("kind", ["activation", "permutation", "cast"])
@pytest.mark.parametrize("optimize", [True, False])
def test_of_several_nodes_one_is_named_without_the_whole_program(
    kind: str, optimize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place alone is converted again: beside thousands of nodes that is nothing."""
    subject = converted("decoder", 2, optimize)
    monkeypatch.setattr(divergence, "_divergence_of_whole", None)
    for seed in range(6):
        result = planted(subject.proto, kind, seed)
        if result is None or not outputs_change(subject, result[0].SerializeToString()):
            continue
        wrong, fault = result[0].SerializeToString(), result[1]
        report = exportguard.find_divergence(subject.exported.program, wrong, subject.inputs)
        assert report.first is not None
        assert fault.is_named_by(report.first.node.outputs), f"{fault}\n{report}"


def first_of(report: exportguard.DivergenceReport) -> tuple[str, ...]:
    """The outputs of the node that is named, within a body where it stands in one."""
    if report.first is None:
        return ()
    return report.first.node.outputs + (report.first.inside.outputs if report.first.inside is not None else ())


def generated_faults(right: Converted, count: int, depth: int | None) -> Iterator[tuple[int, bytes, Generated]]:
    """Faults that make a file which can be read and whose operators exist, and that show in an output."""
    for seed in range(count):
        result = generated(right.proto, seed, depth=depth)
        if result is None:
            continue
        data = result[0].SerializeToString()
        try:
            _core.Evaluator(exportguard.load(data)._core)
        except exportguard.ExportGuardError:
            continue
        if outputs_change(right, data):
            yield seed, data, result[1]


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("family", [*FAMILIES, *MORE_FAMILIES])
def test_faults_that_are_generated_are_named(family: str, optimize: bool) -> None:
    """`EXPORTGUARD_GENERATED_FAULTS` asks for more of each."""
    right = converted(family, 2, optimize)
    assert exportguard.find_divergence(right.exported.program, right.model, right.inputs).agrees
    count = int(os.environ.get("EXPORTGUARD_GENERATED_FAULTS", "24"))
    for depth in (0, 1):
        for seed, data, fault in generated_faults(right, count // 2, depth):
            report = exportguard.find_divergence(right.exported.program, data, right.inputs)
            assert fault.is_named_by(first_of(report)), f"seed {seed}: {fault}\n{report}"


class Mean(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


@pytest.mark.parametrize("sizes", [(2, 3, 5), (4, 4)], ids=["stops", "broadcasts"])
def test_a_value_that_lost_an_axis_is_named_and_not_what_stumbles_over_it(sizes: tuple[int, ...]) -> None:
    x = torch.randn(sizes)
    exported = exported_module(ExportRequest.of(Mean(), (x,), None, dynamic_shapes=None, options=ExportOptions()))
    model = convert(read(exported), opset=OPSET, options=ExportOptions(), optimize=False)
    wrong = onnx.load_from_string(model.to_bytes())
    node = next(one for one in wrong.graph.node if one.op_type == "ReduceMean")
    del node.attribute[:]
    node.attribute.append(onnx.helper.make_attribute("keepdims", 0))
    report = exportguard.find_divergence(exported.program, wrong.SerializeToString(), {"x": x})
    assert report.first is not None
    assert report.first.node.outputs == tuple(node.output), str(report)
    assert "instead of" in str(report)
    other = exportguard.compare(model, wrong.SerializeToString(), {"x": x})
    assert other.first is not None
    assert other.first.node.outputs == tuple(node.output), str(other)


def test_an_output_of_another_form_is_named_where_it_became_so() -> None:
    x = torch.randn(2, 3)
    program = torch.export.export(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.ReLU()).eval(), (x,))
    model = exportguard.to_onnx(program, opset=OPSET)
    wrong = onnx.load_from_string(model.to_bytes())
    tanh = next(one for one in wrong.graph.node if one.op_type == "Tanh")
    wrong.graph.initializer.append(numpy_helper.from_array(numpy.array([0]), "axes"))
    wrong.graph.node.insert(0, onnx.helper.make_node("Unsqueeze", [tanh.input[0], "axes"], ["longer"]))
    tanh.input[0] = "longer"
    report = exportguard.find_divergence(program, wrong.SerializeToString(), {"input": x})
    assert report.first is not None
    assert report.first.node.outputs in (("longer",), tuple(tanh.output)), str(report)


@pytest.mark.parametrize("kind", ["Softmax", "Sigmoid", "Reciprocal"])
def test_a_fault_within_a_local_function_is_named(kind: str) -> None:
    module, args, shapes = FAMILIES["decoder"](3)
    model = exportguard.to_onnx(module, args, dynamic_shapes=shapes, modules_as_functions="repeated", opset=OPSET)
    assert exportguard.find_divergence(module, model, args, dynamic_shapes=shapes).agrees
    wrong = onnx.load_from_string(model.to_bytes())
    nodes = [node for function in wrong.functions for node in function.node if node.op_type == kind]
    if not nodes:
        return
    nodes[0].op_type = {"Softmax": "LogSoftmax", "Sigmoid": "Tanh", "Reciprocal": "Neg"}[kind]
    report = exportguard.find_divergence(module, wrong.SerializeToString(), args, dynamic_shapes=shapes)
    assert report.first is not None
    assert report.first.node.name.split("/")[-1].startswith(nodes[0].output[0]), str(report)
    assert "of the function" in str(report)


@pytest.mark.parametrize(("family", "operator"), [("decoder", "MatMul"), ("encoder", "Gelu"), ("encoder", "Attention")])
def test_a_fault_within_a_function_is_named_in_the_first_layer_that_calls_it(family: str, operator: str) -> None:
    module, args, shapes = FAMILIES[family](4)
    export = ExportOptions(modules_as_functions="repeated")
    model = exportguard.to_onnx(module, args, dynamic_shapes=shapes, options=export, opset=OPSET)
    right = onnx.load_from_string(model.to_bytes())
    calls = [node for node in right.graph.node if node.domain in {function.domain for function in right.functions}]
    calls = [node for node in calls if [call.op_type for call in calls].count(node.op_type) > 1]
    body = next(function for function in right.functions if function.name == calls[0].op_type)
    found = 0
    for place in [place for place, node in enumerate(body.node) if node.op_type == operator][:3]:
        wrong = onnx.ModelProto()
        wrong.CopyFrom(right)
        node = next(one for one in wrong.functions if one.name == body.name).node[place]
        made = node.output[0]
        node.output[0] = f"{made}_right"
        nodes = next(one for one in wrong.functions if one.name == body.name).node
        nodes.insert(place + 1, onnx.helper.make_node("Abs", [f"{made}_right"], [made]))
        report = exportguard.find_divergence(
            module, wrong.SerializeToString(), args, dynamic_shapes=shapes, export=export
        )
        assert report.first is not None, str(report)
        assert report.first.node.name in (f"{body.name}/{made}", f"{body.name}/{made}_right"), str(report)
        path = next(one.value for one in calls[0].metadata_props if one.key == "exportguard.module")
        assert report.first.module.startswith(path), str(report)
        found += 1
    assert found


def test_two_files_with_functions_are_looked_at_within_them() -> None:
    module, args, shapes = FAMILIES["encoder"](4)
    model = exportguard.to_onnx(module, args, dynamic_shapes=shapes, modules_as_functions="repeated", opset=OPSET)
    wrong = onnx.load_from_string(model.to_bytes())
    node = next(node for function in wrong.functions for node in function.node if node.op_type == "Gelu")
    node.op_type = "Elu"
    del node.attribute[:]
    inputs = {value.name: tensor for value, tensor in zip(model.inputs, args, strict=True)}
    assert exportguard.compare(model, model.to_bytes(), inputs).agrees
    report = exportguard.compare(model.to_bytes(), wrong.SerializeToString(), inputs)
    assert report.first is not None
    assert report.first.node.operator == "Elu", str(report)


@pytest.mark.parametrize("narrower", [TensorProto.BFLOAT16, TensorProto.FLOAT16])
def test_a_value_that_goes_through_a_narrower_dtype_is_named_where_it_does(narrower: int) -> None:
    x = torch.rand(2, 3, 8) * 2 - 1
    layers = [torch.nn.Linear(8, 8) for _ in range(4)]
    program = torch.export.export(torch.nn.Sequential(*layers).eval(), (x,))
    right = onnx.load_from_string(exportguard.to_onnx(program, opset=OPSET, optimize=False).to_bytes())
    product = [node for node in right.graph.node if node.op_type == "MatMul"][2]
    made, place = product.output[0], list(right.graph.node).index(product)
    product.output[0] = "whole"
    right.graph.node.insert(place + 1, onnx.helper.make_node("Cast", ["whole"], ["narrow"], to=narrower))
    right.graph.node.insert(place + 2, onnx.helper.make_node("Cast", ["narrow"], [made], to=TensorProto.FLOAT))
    report = exportguard.find_divergence(program, right.SerializeToString(), {"input": x})
    assert report.first is not None
    assert report.first.node.outputs == ("narrow",), str(report)


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.tanh(x * 2), lambda x: torch.sin(x) - 1, (x,)).relu()


class Steps(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, torch.tanh(x * i) + 1

        return while_loop(lambda i, x: i < 4, step, (torch.tensor(0), x))[1] * 2  # type: ignore[no-any-return]


@pytest.mark.parametrize("module", [Branches(), Steps()], ids=["branches", "steps"])
@pytest.mark.parametrize("optimize", [True, False])
def test_a_fault_within_a_body_is_named_with_its_iteration(module: torch.nn.Module, optimize: bool) -> None:
    x = torch.rand(3, 4) + 0.1
    exported = exported_module(
        ExportRequest.of(module.eval(), (x,), None, dynamic_shapes=None, options=ExportOptions())
    )
    model = convert(read(exported), opset=OPSET, options=ExportOptions(), optimize=optimize)
    assert exportguard.find_divergence(exported.program, model, {"x": x}).agrees
    wrong = onnx.load_from_string(model.to_bytes())
    bodies = [body.g for node in wrong.graph.node for body in node.attribute if body.HasField("g")]
    node = next(node for body in bodies for node in body.node if node.op_type == "Tanh")
    node.op_type = "Softsign"
    report = exportguard.find_divergence(exported.program, wrong.SerializeToString(), {"x": x})
    assert report.first is not None
    assert report.first.inside is not None, str(report)
    assert report.first.inside.outputs == tuple(node.output)
    assert report.first.iteration == (0 if isinstance(module, Branches) else 1)  # tanh(0) is softsign(0)
    assert "within it, in iteration" in str(report)


class Nested(torch.nn.Module):
    """A branch within a loop: the count is cast, and the rows are taken, by nodes that the program does not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = torch.cond(x.sum() > 0, lambda x, i: torch.tanh(x * (0.5 + i)), lambda x, i: x - i, (x, i))
            return i + 1, y * (1.5 + i)

        return while_loop(lambda i, x: i < 3, step, (torch.tensor(0), x))[1] * 2  # type: ignore[no-any-return]


def bodies_in(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
                yield from bodies_in(attribute.g)


def unaligned_faults(right: Converted) -> Iterator[tuple[str, bytes]]:
    """The output of each node in a body that no operator of the program stands for, and a file where it is wrong."""
    others = {"Cast": ("IsInf", "IsNaN"), "Gather": ("axis",)}
    for number, body in enumerate(bodies_in(right.proto.graph)):
        for position, node in enumerate(body.node):
            for other in others.get(node.op_type, ()):
                wrong = onnx.ModelProto()
                wrong.CopyFrom(right.proto)
                changed = [*bodies_in(wrong.graph)][number].node[position]
                del changed.attribute[:]
                if other == "axis":
                    changed.attribute.append(onnx.helper.make_attribute("axis", 1))
                else:
                    changed.op_type = other
                    changed.output[0] = f"{node.output[0]}_planted"
                    narrow = onnx.helper.make_node("Cast", [changed.output[0]], [node.output[0]], to=1)
                    [*bodies_in(wrong.graph)][number].node.insert(position + 1, narrow)
                yield changed.output[0], wrong.SerializeToString()


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("kind", ["steps", "nested"])
def test_a_node_in_a_body_that_nothing_is_aligned_with_is_named(kind: str, optimize: bool) -> None:
    if kind == "steps":
        right = converted("steps", 1, optimize)
    else:
        x = torch.rand(3, 4) + 0.1
        exported = exported_module(
            ExportRequest.of(Nested().eval(), (x,), None, dynamic_shapes=None, options=ExportOptions())
        )
        model = convert(read(exported), opset=OPSET, options=ExportOptions(), optimize=optimize)
        right = Converted(exported, model, onnx.load_from_string(model.to_bytes()), {"x": x})
    named = []
    for output, data in unaligned_faults(right):
        if not outputs_change(right, data):
            continue
        report = exportguard.find_divergence(right.exported.program, data, right.inputs)
        assert report.first is not None
        assert report.first.inside is not None, str(report)
        assert output in (*report.first.inside.inputs, *report.first.inside.outputs), f"{output}\n{report}"
        assert report.first.inside.operator in ("IsInf", "IsNaN", "Gather", "Cast"), str(report)
        named.append(output)
    assert named


def test_a_value_in_a_body_that_is_right_but_for_its_dtype_is_named() -> None:
    right = converted("steps", 2)
    wrong = onnx.load_from_string(right.model.to_bytes())
    body = next(bodies_in(wrong.graph))
    tanh = next(one for one in body.node if one.op_type == "Tanh")
    body.node.insert(list(body.node).index(tanh), onnx.helper.make_node("Cast", [tanh.input[0]], ["wide"], to=11))
    tanh.input[0] = "wide"
    report = exportguard.find_divergence(right.exported.program, wrong.SerializeToString(), right.inputs)
    assert report.first is not None
    assert report.first.inside is not None, str(report)
    assert report.first.inside.outputs in (("wide",), tuple(tanh.output)), str(report)


class Small(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.layer_norm(x, (8,), eps=1e-5)
        for _ in range(12):
            y = y * 1.9 - torch.tanh(y)
        return y


@pytest.mark.parametrize("runner", ["evaluator", "onnxruntime"])
def test_an_epsilon_below_every_tolerance_is_named_by_the_rounding(runner: divergence.Runner) -> None:
    """The error grows on its way; where it stems from it is 1e-6 of the values."""
    x = torch.randn(4, 8) * 0.3
    model = exportguard.to_onnx(Small(), (x,), opset=OPSET)
    wrong = onnx.load_from_string(model.to_bytes())
    for node in wrong.graph.node:
        if node.op_type == "LayerNormalization":
            next(one for one in node.attribute if one.name == "epsilon").f = 1.3e-5
    options = DivergenceOptions(runner=runner)
    report = exportguard.compare(model, wrong.SerializeToString(), {"x": x}, options=options)
    assert report.first is not None
    assert report.first.node.operator == "LayerNormalization"
    assert not report.first.is_runtimes_own


def test_the_report_tells_module_line_operators_and_inputs() -> None:
    subject = converted("decoder", 1)
    result = planted(subject.proto, "weight", 1)
    assert result is not None
    report = exportguard.find_divergence(subject.exported.program, result[0].SerializeToString(), subject.inputs)
    first = report.first
    assert first is not None
    assert first.reference_node is not None
    assert first.module.startswith("blocks.0")
    assert "fault_models.py:" in first.source
    assert first.reference_node.operator.startswith("aten.")
    assert first.inputs
    assert all(isinstance(value, torch.Tensor) for value in first.inputs.values())
    assert not first.discrepancy.agrees
    text = str(report)
    assert "the first wrong value is" in text
    assert first.module in text
    assert "beyond" in text


def test_a_model_that_stops_is_named_with_its_error() -> None:
    subject = converted("decoder", 1)
    wrong = onnx.ModelProto()
    wrong.CopyFrom(subject.proto)
    node = next(one for one in wrong.graph.node if one.op_type == "MatMul")
    node.input[1] = next(one.name for one in wrong.graph.initializer if list(one.dims) == [11, 16])
    report = exportguard.find_divergence(subject.exported.program, wrong.SerializeToString(), subject.inputs)
    assert report.first is not None
    assert report.error
    assert report.first.node.outputs == tuple(node.output)


def test_the_reproduction_shows_the_divergence_again(tmp_path: Path) -> None:
    subject = converted("encoder", 2)
    result = planted(subject.proto, "epsilon", 0)
    assert result is not None
    report = exportguard.find_divergence(subject.exported.program, result[0].SerializeToString(), subject.inputs)
    assert report.first is not None
    folder = exportguard.write_reproduction(report.first, tmp_path / "again")
    assert len(onnx.load(str(folder / "model.onnx")).graph.node) == len(report.first.nodes)
    assert json.loads((folder / "figures.json").read_text())["module"] == report.first.module
    for runner in ("evaluator", "onnxruntime"):
        ran = subprocess.run([sys.executable, str(folder / "reproduce.py"), runner], capture_output=True, text=True)
        assert ran.returncode == 1, ran.stderr
        assert "Discrepancy(" in ran.stdout


def test_random_numbers_are_taken_over() -> None:
    class Noisy(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x + torch.rand_like(x)) * 2

    x = torch.randn(3, 4)
    program = torch.export.export(Noisy(), (x,))
    model = exportguard.to_onnx(program)
    assert exportguard.find_divergence(program, model, {"x": x}).agrees


def test_models_of_other_inputs_are_refused() -> None:
    a = exportguard.to_onnx(torch.nn.ReLU(), (torch.ones(2),))
    b = exportguard.to_onnx(torch.nn.Bilinear(2, 2, 2), (torch.ones(1, 2), torch.ones(1, 2)))
    with pytest.raises(exportguard.InvalidArgumentError, match="the models take other inputs"):
        exportguard.compare(a, b)
    with pytest.raises(exportguard.InvalidArgumentError, match="no axis is called seq"):
        exportguard.compare(a, a, sizes={"seq": 3})
    with pytest.raises(exportguard.InvalidArgumentError, match="must be an OnnxModel"):
        exportguard.compare(a, 3)  # type: ignore[arg-type]


class TwoOutputs(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + y, torch.tanh(x)


def rearranged(model: OnnxModel, part: str, kept: list[int]) -> bytes:
    """The file with some of its inputs or outputs, in that order."""
    proto = onnx.load_from_string(model.to_bytes())
    values = getattr(proto.graph, part)
    chosen = [onnx.ValueInfoProto.FromString(values[at].SerializeToString()) for at in kept]
    del values[:]
    values.extend(chosen)
    return proto.SerializeToString()


@pytest.mark.parametrize(
    ("part", "kept", "told"),
    [
        ("input", [1, 0], "the models take their inputs in another order: x, y and y, x"),
        ("output", [1, 0], "the models make their outputs in another order: output_0, output_1 and output_1, output_0"),
        ("output", [0], "the models make 2 and 1 outputs: output_0, output_1 and output_0"),
    ],
)
def test_models_that_cannot_be_held_beside_each_other_are_refused(part: str, kept: list[int], told: str) -> None:
    x = torch.randn(2, 3)
    a = exportguard.to_onnx(TwoOutputs().eval(), (x, x), opset=OPSET)
    with pytest.raises(exportguard.InvalidArgumentError, match=told):
        exportguard.compare(a, rearranged(a, part, kept))


def test_models_of_other_dtypes_are_refused() -> None:
    x = torch.randn(2, 3)
    a, b = (exportguard.to_onnx(TwoOutputs().eval(), (one, one), opset=OPSET) for one in (x, x.half()))
    with pytest.raises(exportguard.InvalidArgumentError, match="the models take input 'x' as f32 and f16"):
        exportguard.compare(a, b)


def test_an_output_that_is_missing_is_told() -> None:
    x = torch.randn(2, 3)
    program = torch.export.export(TwoOutputs().eval(), (x, x))
    model = exportguard.to_onnx(program, opset=OPSET)
    report = exportguard.find_divergence(program, rearranged(model, "output", [0]), {"x": x, "y": x})
    assert not report.agrees
    assert report.error == "the model makes 1 outputs instead of 2"


def test_the_command_names_the_node_and_writes_a_reproduction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subject = converted("decoder", 1)
    result = planted(subject.proto, "weight", 1)
    assert result is not None
    wrong, _ = result
    subject.model.save(tmp_path / "a.onnx")
    onnx.save(wrong, str(tmp_path / "b.onnx"))
    save_tensors(subject.inputs, tmp_path / "inputs.safetensors")
    files = [str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")]
    assert main(["compare", *files, "--sizes", "batch=2,seq=5", "-o", str(tmp_path / "again")]) == 1
    assert "the first wrong value is" in capsys.readouterr().out
    assert (tmp_path / "again" / "reproduce.py").is_file()
    assert main(["compare", files[0], files[0], "--inputs", str(tmp_path / "inputs.safetensors")]) == 0
    assert main(["compare", *files, "--sizes", "batch"]) == 2


def test_a_tolerance_of_ones_own_is_told() -> None:
    a = exportguard.to_onnx(torch.nn.Softplus(), (torch.ones(2),))
    options = DivergenceOptions(tolerance=Tolerance(absolute=0.5, relative=0.0))
    assert exportguard.compare(a, a, options=options).outputs[0].tolerance == Tolerance(absolute=0.5, relative=0.0)
