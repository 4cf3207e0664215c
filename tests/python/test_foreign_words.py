"""What people write who come from other exporters: taken where it means the same, else answered with what to write."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils import _pytree as pytree

import exportguard as eg
from exportguard import ExportGuardError, to_onnx
from exportguard.dynamic_shapes import normalise
from exportguard.guard import torch_export_patches
from exportguard.inputs import CallInputs

X = torch.randn(3, 4)


class Model(torch.nn.Module):
    def forward(self, x: Any, y: Any = None) -> Any:
        return x * 2 if y is None else x * y


class Lookup(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(5, 3)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.table(input_ids)


class Continued(torch.nn.Module):
    """Goes on from a cache as the models of transformers do."""

    def forward(self, x: torch.Tensor, past_key_values: Any) -> torch.Tensor:
        return x + past_key_values.get_seq_length()


class Box:
    def __init__(self, content: torch.Tensor) -> None:
        self.content = content


@dataclasses.dataclass
class Pair:
    content: torch.Tensor


class Asks(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def layers_at_once(x: torch.Tensor) -> torch.Tensor:
    def layer(weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.linear(functional.layer_norm(x, (4,), scale, bias), weight, bias)

    return torch.vmap(layer)(torch.ones(3, 4, 4), torch.ones(3, 4), torch.ones(3, 4))


class Packs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Pair:
        return Pair(x * 2)


class Weighs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class Opens(torch.nn.Module):
    def forward(self, box: Any) -> torch.Tensor:
        return box.content * 2


def convert(**foreign: Any) -> Any:
    function: Any = to_onnx
    return function(Model().eval(), (X,), **foreign)


def within(mode: Any) -> Any:
    model = Model().eval()
    with mode:
        return to_onnx(model, (X,))


def of_inference() -> torch.nn.Module:
    with torch.inference_mode():
        return torch.nn.Linear(4, 2).eval()


def cache(layers: int) -> Any:
    return eg.make_dynamic_cache([(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))] * layers)


KEY_VALUE = (torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))
CONFIG = transformers.LlamaConfig(num_hidden_layers=1)

#: What is called, and a part of the answer.
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "dynamic_axes": (lambda: convert(dynamic_axes={"x": {0: "b"}}), "write dynamic_shapes={'input': {0: 'batch'}}"),
    "output_dynamic_shapes": (lambda: convert(output_dynamic_shapes=({0: "b"},)), "follow from those of the inputs"),
    "external_data": (lambda: convert(external_data=True), "ExportOptions(external_data='always')"),
    "dynamo=False": (lambda: convert(dynamo=False), "leave it out: a program of torch.export"),
    "do_constant_folding": (lambda: convert(do_constant_folding=True), "write optimize=True"),
    "custom_translation_table": (lambda: convert(custom_translation_table={}), "dispatcher=Dispatcher({...})"),
    "custom_opsets": (lambda: convert(custom_opsets={"a": 1}), "leave it out"),
    "export_params": (lambda: convert(export_params=True), "the weights are written"),
    "keep_initializers": (lambda: convert(keep_initializers_as_inputs=False), "weights are no inputs"),
    "operator_export_type": (lambda: convert(operator_export_type=None), "get a converter"),
    "training": (lambda: convert(training=None), "call model.eval()"),
    "verbose": (lambda: convert(verbose=1), "logging.getLogger('exportguard')"),
    "verify": (lambda: convert(verify=True), "exportguard.validate_module("),
    "report": (lambda: convert(report=True), "use what is returned"),
    "save_ep": (lambda: convert(save_ep="a"), "pass the program"),
    "fallback": (lambda: convert(fallback=True), "there is one exporter"),
    "exporter": (lambda: convert(exporter="onnx-dynamo"), "--export onnx-dynamo"),
    "modules as functions": (lambda: convert(export_modules_as_functions=True), "text(sources=True)"),
    "an unknown one": (lambda: convert(colour="red"), "no argument colour; it takes model_or_program, args"),
    "one twice": (lambda: convert(opset_version=18, opset=18), "are the same argument; pass opset"),
    "a wrong opset_version": (lambda: convert(opset_version=9), "opset must be between 18"),
    "args by name": (lambda: to_onnx(Model(), {"x": X}), "pass kwargs={…}"),  # type: ignore[arg-type]
    "a configuration": (lambda: to_onnx(CONFIG, (X,)), "AutoModelForCausalLM.from_config(config)"),  # type: ignore[arg-type]
    "the name of a model": (lambda: to_onnx("llama", (X,)), "exportguard export -m"),  # type: ignore[arg-type]
    "a class": (lambda: to_onnx(Model, (X,)), "pass an instance of the class"),  # type: ignore[arg-type]
    "axes of two inputs": (
        lambda: to_onnx(Model().eval(), (X, X), dynamic_shapes={0: "b"}),
        "write {'x': {0: 'b'}}",
    ),
    "axes in a list": (lambda: convert(dynamic_shapes={"x": [0]}), "or {axis: name} for those that change"),
    "axes of an output": (
        lambda: convert(dynamic_shapes={"x": {0: "b"}, "output": {0: "b"}}),
        "The axes of outputs follow",
    ),
    "float ids": (lambda: to_onnx(Lookup().eval(), (torch.zeros(2, 3),)), "pass input_ids.long()"),
    "ids in a list": (lambda: to_onnx(Lookup().eval(), ([[1, 2]],)), "pass a tensor for the list"),
    "a class of one's own": (lambda: to_onnx(Opens().eval(), (Box(X),)), "exportguard.register_class_serialization"),
    "a dataclass": (lambda: to_onnx(Opens().eval(), (Pair(X),)), "exportguard.register_class_serialization"),
    "a tuple for a cache": (
        lambda: to_onnx(Continued().eval(), (X, (KEY_VALUE,))),
        "exportguard.make_dynamic_cache([(key, value), …])",
    ),
    "a list for a cache": (
        lambda: to_onnx(Continued().eval(), (X, [KEY_VALUE])),
        "exportguard.make_dynamic_cache([(key, value), …])",
    ),
    "arguments by name at the end": (
        lambda: to_onnx(Model().eval(), (X, {"y": X})),
        "pass arguments by name as kwargs={…}",
    ),
    "arguments by name alone": (lambda: to_onnx(Model().eval(), ({"x": X},)), "which has x; pass arguments by name"),
    "what a tokenizer returns": (
        lambda: to_onnx(Model().eval(), (transformers.BatchEncoding({"x": X}),), dynamic_shapes={"x": {0: "batch"}}),
        "take the BatchEncoding at the end of args, which has x; pass arguments by name as kwargs={…}",
    ),
    "a mapping": (
        lambda: to_onnx(Model().eval(), (X, UserDict({"y": X}))),
        "take the UserDict at the end of args, which has y; pass arguments by name as kwargs={…}",
    ),
    "a set": (lambda: to_onnx(Opens().eval(), ({X},)), "pass a list for the set"),
    "a dataclass that is returned": (lambda: to_onnx(Packs().eval(), (X,)), "return a tuple, a list or a dictionary"),
    "weights on meta": (
        lambda: to_onnx(torch.nn.Linear(4, 2, device="meta").eval(), (X,)),
        "load the weights into the model",
    ),
    "an input on meta": (lambda: to_onnx(Weighs().eval(), (X.to("meta"),)), "pass inputs with data"),
    "a nested tensor": (
        lambda: to_onnx(Model().eval(), (torch.nested.nested_tensor([X[0], X[0]], layout=torch.jagged),)),
        "take torch.nested.to_padded_tensor(x, 0)",
    ),
    "a quantized tensor": (
        lambda: to_onnx(Model().eval(), (torch.quantize_per_tensor(X, 0.1, 0, torch.quint8),)),
        "pass x.dequantize()",
    ),
    "a set of sizes": (
        lambda: to_onnx(Asks(lambda x: x * len({*x.shape})).eval(), (X,), dynamic_shapes=({0: "rows"},)),
        "compare the sizes themselves",
    ),
    "functions of numpy": (
        lambda: to_onnx(Asks(lambda x: torch.from_numpy(numpy.square(x.numpy()))).eval(), (X,)),
        "functions of numpy are no operators of a program",
    ),
    "sizes in an array of numpy": (
        lambda: to_onnx(
            Asks(lambda x: x[:, 0] + torch.from_numpy(numpy.arange(x.shape[0]))).eval(),
            (X,),
            dynamic_shapes=({0: "rows"},),
        ),
        r"numpy keeps dynamic sizes as objects, of which no tensor is made: ask torch, torch.arange(n)",
    ),
    "layers in one call of vmap": (
        lambda: to_onnx(Asks(layers_at_once).eval(), (torch.randn(2, 3, 4),), dynamic_shapes=({0: "b", 1: "s"},)),
        "write such a loop out, torch.stack([f(w) for w in weights])",
    ),
    "inputs of another size beside a program": (
        lambda: to_onnx(torch.export.export(Model(), (X,)), (torch.zeros(5, 4),)),
        "takes torch.float32 of [3, 4] for x, got torch.float32 of [5, 4]; it is converted as it was exported",
    ),
    "within a fake mode": (lambda: within(FakeTensorMode(allow_non_fake_inputs=True)), "call to_onnx outside of it"),
    "a part that is a script": (
        lambda: to_onnx(torch.nn.Sequential(torch.jit.script(torch.nn.ReLU())).eval(), (X,)),
        "0 of Sequential is a TorchScript module",
    ),
    "weights of inference": (
        lambda: to_onnx(of_inference(), (X,)),
        "make the model and its inputs under torch.no_grad()",
    ),
    "a script": (
        lambda: to_onnx(torch.jit.trace(Model().eval(), (X,)), (X,)),
        "take the module that it was made of",
    ),
    "a sparse tensor": (lambda: to_onnx(Model().eval(), (X.to_sparse(),)), "of layout torch.sparse_coo, which no"),
    "a sparse tensor in the model": (
        lambda: to_onnx(Asks(lambda x: torch.sparse.mm(x.to_sparse(), x.T)).eval(), (X,)),
        "keep x.to_dense(), and write torch.matmul for torch.sparse.mm",
    ),
    "a nested tensor in the model": (
        lambda: to_onnx(Asks(lambda x: torch.nested.as_nested_tensor([x, x]).to_padded_tensor(0.0)).eval(), (X,)),
        "a program takes and makes no nested tensor",
    ),
    "a part without weights": (
        lambda: to_onnx(torch.nn.Sequential(torch.nn.LazyLinear(2)).eval(), (X,)),
        "0 of Sequential, a LazyLinear, has no weights before its first call; call the model once",
    ),
    "a part with packed weights": (
        lambda: to_onnx(quantized(), (X,)),
        "0._packed_params of Sequential, a LinearPackedParams, holds what only kernels of torch can read",
    ),
}


def quantized() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Linear(4, 2)).eval()
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def test_inputs_that_a_program_takes_may_stand_beside_it() -> None:
    program = torch.export.export(Model(), (X,), dynamic_shapes=({0: torch.export.Dim("b")},))
    assert to_onnx(program, (torch.zeros(5, 4),)).inputs[0].shape[1] == 4  # type: ignore[index]


def test_a_dictionary_that_the_model_takes_is_an_argument() -> None:
    class Takes(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x["x"] * 2

    onnx_model = to_onnx(Takes().eval(), ({"x": X},))
    assert torch.equal(onnx_model.run({"x.x": X})[onnx_model.outputs[0].name], X * 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_means_something_else_is_answered_with_what_to_write(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(ExportGuardError, match=re.escape(text)):
        call()


# ---------------------------------------------------------------------------------------------------- taken


def test_arguments_are_taken_under_their_other_names(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = convert(opset_version=19, f=path, input_names=["a"], output_names=["b"], dynamo=True)
    assert (model.opset, path.is_file()) == (19, True)
    assert [value.name for value in (*model.inputs, *model.outputs)] == ["a", "b"]
    assert convert(target_opset=20).opset == 20


def test_fields_beside_options_change_the_options() -> None:
    model = convert(options=eg.ExportOptions(output_names=["b"]), input_names=["a"])
    assert [value.name for value in (*model.inputs, *model.outputs)] == ["a", "b"]


def test_axes_alone_are_those_of_the_only_input() -> None:
    assert convert(dynamic_shapes={0: "batch"}).inputs[0].shape == ("batch", 4)
    assert convert(dynamic_shapes={-1: "width"}).inputs[0].shape == (3, "width")


def test_arrays_and_numbers_of_numpy_are_tensors_and_numbers() -> None:
    call = CallInputs.of(Model().forward, (X.numpy()[::-1], numpy.float32(3)), None)
    assert torch.equal(call.args[0], X.flip(0))
    assert type(call.args[1]) is float
    nested = CallInputs.of(Model().forward, (), {"x": {"a": [numpy.arange(3)]}, "y": numpy.bool_(True)})
    assert nested.kwargs["x"]["a"][0].dtype == torch.int64
    assert nested.kwargs["y"] is True


def test_inputs_without_numpy_stay_the_same_objects() -> None:
    nested = {"a": [X]}
    assert CallInputs.of(Model().forward, (nested,), None).args[0] is nested


def test_a_model_is_converted_from_an_array() -> None:
    model = to_onnx(Model().eval(), (X.numpy(),), dynamic_shapes=({0: "b"},))
    assert model.inputs[0].shape == ("b", 4)


def axes_of_cache(layers: int, spec: Any) -> dict[str, Any]:
    with torch_export_patches(patch=False):
        call = CallInputs.of(Continued().forward, (), {"x": X, "past_key_values": cache(layers)})
        shapes = normalise(call, {"past_key_values": spec})
    return {shape.leaf.name: dict(shape.axes) for shape in shapes if shape.axes}


@pytest.mark.parametrize("layers", [1, 3])
def test_keys_and_values_of_a_cache_may_be_listed_by_kind_or_by_layer(layers: int) -> None:
    keys, values = {2: "keys"}, {0: "b"}
    flat = axes_of_cache(layers, [keys, values] * layers)
    assert axes_of_cache(layers, [[keys] * layers, [values] * layers]) == flat
    assert axes_of_cache(layers, [[keys, values]] * layers) == flat
    assert flat["past_key_values.0.key"] == {2: "keys"}


def test_two_lists_of_two_are_refused_unless_both_readings_are_the_same() -> None:
    same = {0: "b", 2: "past"}
    assert len(axes_of_cache(2, [[same, same], [same, same]])) == 4
    with pytest.raises(eg.InvalidArgumentError, match="keys and values or layers; pass an entry for each tensor"):
        axes_of_cache(2, [[{0: "b"}, {2: "n"}], [{1: "h"}, {3: "w"}]])


# ---------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", eg._CALLED_HERE)
def test_a_name_of_another_package_is_answered_with_the_one_here(name: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"exportguard.{eg._CALLED_HERE[name]}")):
        getattr(eg, name)


@pytest.mark.parametrize("here", sorted(set(eg._CALLED_HERE.values())))
def test_what_a_name_is_called_here_is_there(here: str) -> None:
    module, _, name = here.rpartition(".")
    owner = importlib.import_module(f"exportguard.{module}") if module else eg
    assert callable(getattr(owner, name))


def test_there_are_enough_of_them() -> None:
    assert len(REFUSED) + len(eg._CALLED_HERE) >= 40


def test_every_public_name_has_a_home() -> None:
    assert set(eg.__all__) == {*eg._HOME_OF, "__version__"}
    assert all(getattr(eg, name) is not None for name in eg.__all__)
    assert pytree.tree_leaves(list(eg._HOMES))
