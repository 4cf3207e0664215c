"""What torch.export made, as a graph of torch operators: small programs, compared as text."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from exportguard import InvalidArgumentError, ProgramError, _core
from exportguard.reading import Exported, dimension_names, program_names

ROWS = {0: Dim.DYNAMIC}


class Called(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, *others: Any) -> Any:
        return self.function(x, *others)


def exported(model: Any, *inputs: Any, **options: Any) -> torch.export.ExportedProgram:
    module = model if isinstance(model, torch.nn.Module) else Called(model)
    return torch.export.export(module, inputs, strict=False, **options)


def imported(program: torch.export.ExportedProgram) -> _core.Model:
    names = program_names(Exported(program))
    model = _core.import_program(
        program, input_names=list(names.inputs), output_names=list(names.outputs), dim_names=names.dims
    )
    model.verify()
    return model


def body(program: torch.export.ExportedProgram) -> str:
    """The graph without the elements of initializers."""
    return re.sub(r" = \{[^}]*\}", "", imported(program).text()).strip()


def names(values: Sequence[tuple[Any, ...]]) -> list[str]:
    return [value[0] for value in values]


def test_arguments_stand_at_the_position_of_the_schema() -> None:
    program = exported(lambda x, y: torch.add(y, x, alpha=2), torch.ones(2, 3), torch.ones(2, 3))
    assert "aten.add.Tensor(%others_0, %x, 2)" in body(program)


def test_gaps_before_a_keyword_argument_are_filled_with_the_defaults_of_the_schema() -> None:
    program = exported(
        lambda x: torch.zeros(3, device="cpu") + torch.empty_like(x, memory_format=torch.preserve_format), torch.ones(3)
    )
    assert "aten.zeros.default([3], None, None, @cpu, false)" in body(program)
    assert "aten.empty_like.default(%x, None, None, None, false, @preserve_format)" in body(program)


def test_sizes_are_expressions_of_the_named_dimensions() -> None:
    program = exported(lambda x: torch.cat([x, x[1:]]), torch.ones(4, 3), dynamic_shapes=(ROWS,))
    assert imported(program).inputs == [("x", "f32[x_dim0,3]", "f32", ["x_dim0", 3])]
    assert imported(program).outputs == [("output_0", "f32[2*x_dim0 - 1,3]", "f32", ["2*x_dim0 - 1", 3])]


def test_a_symbolic_size_is_a_scalar_with_its_expression() -> None:
    program = exported(lambda x: x.reshape(x.shape[0] * 3), torch.ones(4, 3), dynamic_shapes=(ROWS,))
    text = body(program)
    assert re.search(r"%\w+: int\{x_dim0\} = aten.sym_size.int\(%x, 0\)", text)
    assert re.search(r"%\w+: int\{3\*x_dim0\} = operator.mul\(%\w+, 3\)", text)


def test_results_of_one_operator_are_outputs_of_one_node() -> None:
    program = exported(lambda x: torch.topk(x, 2)[1], torch.ones(2, 3))
    assert "%getitem: f32[2,2], %getitem_1: i64[2,2] = aten.topk.default(%x, 2)" in body(program)
    assert "getitem(" not in body(program)


def test_weights_are_named_by_their_path_and_share_their_memory() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.ReLU())
    program = exported(model, torch.ones(1, 2))
    with torch.no_grad():
        core = imported(program)
        model[0].weight.fill_(5.0)
    assert '%"0.weight": f32[2,2] = {5.0, 5.0, 5.0, 5.0}' in core.text()


def test_tied_weights_are_one_initializer() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    text = body(exported(model, torch.ones(1, 2)))
    assert text.count(": f32[2,2]") == 1
    assert text.count("aten.linear.default") == 2


def test_constants_that_export_lifted_are_initializers() -> None:
    table = torch.arange(3.0)
    text = imported(exported(lambda x: x + table, torch.ones(3))).text()
    assert "= {0.0, 1.0, 2.0}" in text


def test_an_initializer_gives_way_to_an_input_of_its_name() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight * self.weight

    text = body(exported(Model(), torch.ones(2)))
    assert "graph(%weight: f32[2], %weight_1: f32[2])" in text


def test_inputs_that_export_made_constants_are_literals() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: int, flag: bool, scale: float, mask: None = None) -> torch.Tensor:
            return x.sum(n, keepdim=flag) * scale

    program = exported(Model(), torch.ones(2, 3), 1, True, 0.5, None)
    assert names(imported(program).inputs) == ["x"]
    assert "aten.sum.dim_IntList(%x, [1], true)" in body(program)
    assert ", 0.5)" in body(program)


def test_an_input_that_is_an_integer_stays_one_if_it_is_dynamic() -> None:
    program = exported(lambda x, n: x * n, torch.ones(2), 3, dynamic_shapes=(None, (Dim.DYNAMIC,)))
    assert imported(program).inputs[1][:3] == ("others_0", "int{others_0}", "i64")


def test_outputs_may_be_none_and_numbers() -> None:
    program = exported(lambda x: {"a": x + 1, "b": None, "c": 7}, torch.ones(2))
    assert body(program).endswith("return (%add as a, _ as b, %c_value as c)")


def test_inputs_and_outputs_are_named_by_their_path() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, past: dict[str, Any], *, pair: Any) -> dict[str, Any]:
            return {"y": x + past["k"][0], "parts": (pair[0] * 2, pair[1] * 2)}

    program = torch.export.export(
        Model(), (torch.ones(2), {"k": [torch.ones(2)]}), {"pair": (torch.ones(2), torch.ones(2))}
    )
    assert names(imported(program).inputs) == ["x", "past.k.0", "pair.0", "pair.1"]
    assert names(imported(program).outputs) == ["y", "parts.0", "parts.1"]


def test_what_a_tuple_returns_is_numbered() -> None:
    assert program_names(Exported(exported(lambda x: (x + 1, x + 2), torch.ones(2)))).outputs == (
        "output_0",
        "output_1",
    )
    assert program_names(Exported(exported(lambda x: x + 1, torch.ones(2)))).outputs == ("output_0",)


def test_an_output_does_not_take_the_name_of_an_input() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any, past_key_values: Any) -> dict[str, Any]:
            return {"x": x + 1, "past_key_values": [past_key_values[0] * 2]}

    assert program_names(Exported(exported(Model(), torch.ones(2), [torch.ones(2)]))).outputs == ("x_out", "present.0")


def test_a_cache_that_no_input_holds_is_present_all_the_same() -> None:
    program = exported(lambda x: {"logits": x + 1, "past_key_values": [x * 2]}, torch.ones(2))
    assert program_names(Exported(program)).outputs == ("logits", "present.0")


def test_a_registered_class_names_its_parts_by_its_context() -> None:
    class Pair:
        def __init__(self, key: Any, value: Any) -> None:
            self.key, self.value = key, value

    pytree.register_pytree_node(
        Pair,
        lambda pair: ([pair.key, pair.value], {"leaves": ["0.key", "0.value"]}),
        lambda leaves, context: Pair(*leaves),
        serialized_type_name="test_importer.Pair",
        flatten_with_keys_fn=lambda pair: (
            [(pytree.GetAttrKey("key"), pair.key), (pytree.GetAttrKey("value"), pair.value)],
            {"leaves": ["0.key", "0.value"]},
        ),
    )
    try:
        program = exported(
            lambda x, cache: Pair(cache.key + x, cache.value), torch.ones(2), Pair(torch.ones(2), torch.ones(2))
        )
        found = program_names(Exported(program))
    finally:
        pytree._deregister_pytree_node(Pair)
    assert found.inputs == ("x", "others_0.0.key", "others_0.0.value")
    assert found.outputs == ("output_0.key", "output_0.value")


def test_dimensions_keep_the_names_of_the_user_and_the_others_get_readable_ones() -> None:
    program = exported(
        lambda x, y: x.sum() + y,
        torch.ones(4, 3),
        torch.ones(5, 6),
        dynamic_shapes=(ROWS, ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)),
    )
    examples = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
    symbols = [str(size) for example in examples for size in example.shape if isinstance(size, torch.SymInt)]
    assert dimension_names(["x", "a.b"], examples, {symbols[0]: "batch"}) == {
        symbols[0]: "batch",
        symbols[1]: "a_b_dim0",
        symbols[2]: "a_b_dim1",
    }


def test_nodes_know_the_module_and_the_line_of_the_user() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)  # the line

    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(i for i, text in enumerate(lines, 1) if text.endswith("# the line"))
    model = torch.nn.Sequential(Block(), Block())
    text = imported(exported(model, torch.ones(1, 2))).text(sources=True)
    assert f"# 0.inner, test_importer.py:{line}" in text
    assert f"# 1.inner, test_importer.py:{line}" in text


def test_branches_are_graphs_of_the_node() -> None:
    program = exported(lambda x: torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a * 2, (x,)), torch.ones(3))
    text = body(program)
    assert "higher_order.cond(%gt, None, None, [%x]) {true_fn=graph(" in text
    assert ", false_fn=graph(" in text


def test_loop_bodies_are_named_after_the_parameters_of_the_loop() -> None:
    from torch._higher_order_ops import scan, while_loop

    def loops(x: torch.Tensor) -> Any:
        _, y = while_loop(lambda n, y: n < 3, lambda n, y: (n + 1, y * 2), (torch.tensor(0), x))
        return scan(lambda c, row: (c + row, c * row), torch.zeros(3), y)

    text = body(exported(loops, torch.ones(2, 3)))
    assert re.search(r"higher_order.while_loop\(None, None, \[%\w+, %x\], \[\]\) \{cond_fn=graph\(", text)
    assert "body_fn=graph(" in text
    assert re.search(r"higher_order.scan\(None, \[%\w+\], \[%\w+\], \[\]\) \{combine_fn=graph\(", text)


def test_a_region_without_gradients_is_a_body() -> None:
    def region(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x * 2
        return y + 1

    model = imported(exported(region, torch.ones(2, requires_grad=True)))
    if "wrap_with_set_grad_enabled" in model.text():
        assert "{body=graph(" in model.text()
    _core.functionalize(model)
    assert "higher_order" not in model.text()


def test_the_program_stays_as_it_was() -> None:
    program = exported(torch.nn.Linear(2, 2), torch.ones(1, 2))
    before = str(program)
    _core.functionalize(imported(program))
    assert str(program) == before


def test_fake_weights_are_refused_by_name() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    assert mode is not None
    with pytest.raises(ProgramError, match=r"the model has fake weights: '(weight|bias)' is a fake tensor"):
        imported(program)


def test_something_that_is_no_program_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"program must be a torch.export.ExportedProgram, got ReLU; call torch.export.export first"
    ):
        _core.import_program(torch.nn.ReLU())


def test_too_few_names_are_refused() -> None:
    program = exported(lambda x: x + 1, torch.ones(2))
    with pytest.raises(ValueError, match="input_names must have a name for each of the program's inputs, got 0"):
        _core.import_program(program, input_names=[])


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """The collections of cycles that Python starts, at each object that is made."""
    seen: list[str] = []
    before = gc.get_threshold()
    gc.callbacks.append(note := lambda phase, info: seen.append(phase))
    gc.set_threshold(1, 1, 1)
    yield seen
    gc.callbacks.remove(note)
    gc.set_threshold(*before)
    gc.enable()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_pythons_collector_waits_for_an_import_and_is_then_as_before(collections: list[str], is_enabled: bool) -> None:
    program = exported(torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(40)]), torch.ones(3, 2))
    if not is_enabled:
        gc.disable()
    collections.clear()
    _core.import_program(program)
    during = len(collections)
    assert gc.isenabled() == is_enabled
    with pytest.raises(InvalidArgumentError, match="input_names must have a name"):
        _core.import_program(program, input_names=[])
    assert gc.isenabled() == is_enabled
    assert during < 10
