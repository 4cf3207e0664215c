"""Every public argument that is wrong is named, and the error is the library's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim

import exportguard as eg
from exportguard import ExportGuardError, ExportOptions, to_onnx
from exportguard.models import BuildOptions, build_model

X = torch.zeros(3, 4)
PAIR = [(torch.zeros(2, 2, 3, 4), torch.zeros(2, 2, 3, 4))]


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: Any = None) -> torch.Tensor:
        return x * 2


class Class:
    pass


def module() -> Any:
    return Model().eval()


def converted() -> eg.OnnxModel:
    return to_onnx(module(), (X,))


def opened(**options: Any) -> None:
    with eg.torch_export_patches(**options):
        pass


def registered(*arguments: Any, **options: Any) -> None:
    """Registers a class, and takes it back if nothing objects."""
    eg.register_class_serialization(*arguments, **options)
    eg.unregister_class_serialization(arguments[0])


def fake() -> torch.Tensor:
    with FakeTensorMode() as mode:
        return mode.from_tensor(X)


def nested() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.zeros(4)] * 3, layout=torch.jagged)


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)


def entered(manager: Any) -> None:
    with manager:
        pass


Call = Callable[[], Any]

# What is called, and a part of the text that names the argument.
CALLS: dict[str, tuple[Call, str]] = {
    "no model": (lambda: to_onnx(None, (X,)), "model_or_program"),  # type: ignore[arg-type]
    "a function": (lambda: to_onnx(len, (X,)), "model_or_program"),  # type: ignore[arg-type]
    "a class of modules": (lambda: to_onnx(Model, (X,)), "model_or_program"),  # type: ignore[arg-type]
    "a name": (lambda: to_onnx("llama", (X,)), "model_or_program"),  # type: ignore[arg-type]
    "args: a tensor": (lambda: to_onnx(module(), X), "args"),
    "args: a dictionary": (lambda: to_onnx(module(), {"x": X}), "args"),  # type: ignore[arg-type]
    "args: None": (lambda: to_onnx(module(), None), "args"),  # type: ignore[arg-type]
    "args: too many": (lambda: to_onnx(module(), (X, X, X)), "too many positional arguments"),
    "args: none": (lambda: to_onnx(module()), "missing a required argument: 'x'"),
    "kwargs: a list": (lambda: to_onnx(module(), kwargs=[X]), "kwargs"),  # type: ignore[arg-type]
    "kwargs: a tensor": (lambda: to_onnx(module(), kwargs=X), "kwargs"),  # type: ignore[arg-type]
    "kwargs: numbers for names": (lambda: to_onnx(module(), kwargs={0: X}), "kwargs"),  # type: ignore[dict-item]
    "kwargs: an unknown name": (lambda: to_onnx(module(), (X,), {"z": X}), "'z'"),
    "kwargs: given twice": (lambda: to_onnx(module(), (X,), {"x": X}), "'x'"),
    "dynamic_shapes: a name": (lambda: to_onnx(module(), (X,), dynamic_shapes="x"), "dynamic_shapes"),
    "dynamic_shapes: a number": (lambda: to_onnx(module(), (X,), dynamic_shapes=5), "dynamic_shapes"),  # type: ignore[arg-type]
    "dynamic_shapes: a set": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x"}), "dynamic_shapes"),  # type: ignore[arg-type]
    "dynamic_shapes: too short": (lambda: to_onnx(module(), (X, X), dynamic_shapes=({},)), "dynamic_shapes"),
    "dynamic_shapes: unknown": (lambda: to_onnx(module(), (X,), dynamic_shapes={"z": {0: "b"}}), "dynamic_shapes"),
    "dynamic_shapes: axis 2": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {2: "b"}}), "axis 2 of x"),
    "dynamic_shapes: axis -3": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {-3: "b"}}), "axis -3 of x"),
    "dynamic_shapes: axis 'a'": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {"a": "b"}}), "'a'"),
    "dynamic_shapes: axis True": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {True: "b"}}), "True"),
    "dynamic_shapes: twice": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {0: "b", -2: "c"}}), "axis 0 of x"),
    "dynamic_shapes: an object": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {0: 1.5}}), "1.5"),
    "dynamic_shapes: True": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {0: True}}), "True"),
    "dynamic_shapes: an empty name": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {0: ""}}), "''"),
    "dynamic_shapes: another size": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {0: 7}}), "axis 0 of x"),
    "dynamic_shapes: a negative size": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {0: -1}}), "axis 0 of x"),
    "dynamic_shapes: of None": (lambda: to_onnx(module(), (X, None), dynamic_shapes={"y": {0: "b"}}), " y"),
    "dynamic_shapes: a list of three": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": ["a"] * 3}), " x"),
    "dynamic_shapes: unequal": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {0: "b", 1: "b"}}), "'b'"),
    "dynamic_shapes: bounds": (lambda: to_onnx(module(), (X,), dynamic_shapes={"x": {0: Dim("b", min=5)}}), "b"),
    "opset: 5": (lambda: to_onnx(module(), (X,), opset=5), "opset"),
    "opset: 99": (lambda: to_onnx(module(), (X,), opset=99), "opset"),
    "opset: text": (lambda: to_onnx(module(), (X,), opset="18"), "opset"),  # type: ignore[arg-type]
    "opset: 18.0": (lambda: to_onnx(module(), (X,), opset=18.0), "opset"),  # type: ignore[arg-type]
    "opset: True": (lambda: to_onnx(module(), (X,), opset=True), "opset"),
    "on_fixed_axis: ignore": (lambda: to_onnx(module(), (X,), on_fixed_axis="ignore"), "on_fixed_axis"),  # type: ignore[arg-type]
    "on_fixed_axis: None": (lambda: to_onnx(module(), (X,), on_fixed_axis=None), "on_fixed_axis"),  # type: ignore[arg-type]
    "output: a number": (lambda: to_onnx(module(), (X,), output=3), "output"),  # type: ignore[arg-type]
    "output: bytes": (lambda: to_onnx(module(), (X,), output=b"x.onnx"), "output"),  # type: ignore[arg-type]
    "output: empty": (lambda: to_onnx(module(), (X,), output=""), "output"),
    "output: no folder": (lambda: to_onnx(module(), (X,), output="/nowhere/x.onnx"), "/nowhere"),
    "output: a zero": (lambda: to_onnx(module(), (X,), output="a\0b.onnx"), "output"),
    "output: long": (lambda: to_onnx(module(), (X,), output="a" * 300 + ".onnx"), "too long"),
    "rewrite: a number": (lambda: to_onnx(module(), (X,), rewrite=3), "rewrite"),
    "rewrite: another word": (lambda: to_onnx(module(), (X,), rewrite="all"), "rewrite"),
    "rewrite: a list of numbers": (lambda: to_onnx(module(), (X,), rewrite=[3]), "rewrite"),
    "options: a dictionary": (lambda: to_onnx(module(), (X,), options={}), "options"),  # type: ignore[arg-type]
    "options: None": (lambda: to_onnx(module(), (X,), options=None), "options"),  # type: ignore[arg-type]
    "options: the class": (lambda: to_onnx(module(), (X,), options=ExportOptions), "options"),  # type: ignore[arg-type]
    "guard: a number": (lambda: ExportOptions(guard=5), "guard"),  # type: ignore[arg-type]
    "guard: True": (lambda: ExportOptions(guard=True), "guard"),  # type: ignore[arg-type]
    "guard: unknown": (lambda: ExportOptions(guard={"patches": True}), "patches"),
    "strict: text": (lambda: ExportOptions(strict="no"), "strict"),  # type: ignore[arg-type]
    "input_names: text": (lambda: ExportOptions(input_names="x"), "input_names"),
    "input_names: a number": (lambda: ExportOptions(input_names=1), "input_names"),  # type: ignore[arg-type]
    "input_names: numbers": (lambda: ExportOptions(input_names=[1]), "input_names"),  # type: ignore[list-item]
    "input_names: twice": (lambda: ExportOptions(input_names=["a", "a"]), "input_names"),
    "input_names: empty": (lambda: ExportOptions(input_names=[""]), "input_names"),
    "output_names: text": (lambda: ExportOptions(output_names="x"), "output_names"),
    "output_names: None in it": (lambda: ExportOptions(output_names=[None]), "output_names"),  # type: ignore[list-item]
    "external_data: True": (lambda: ExportOptions(external_data=True), "external_data"),  # type: ignore[arg-type]
    "external_data: yes": (lambda: ExportOptions(external_data="yes"), "external_data"),  # type: ignore[arg-type]
    "mutated_outputs: None": (lambda: ExportOptions(mutated_outputs=None), "mutated_outputs"),  # type: ignore[arg-type]
    "names: too many": (lambda: to_onnx(module(), (X,), options=ExportOptions(input_names=["a", "b"])), "input_names"),
    "patch: text": (lambda: opened(patch="no"), "patch"),
    "patch: None": (lambda: opened(patch=None), "patch"),
    "serializers: a list": (lambda: opened(serializers=[1]), "serializers"),
    "patch_torch: a number": (lambda: opened(patch_torch=2), "patch_torch"),
    "patch_transformers: text": (lambda: opened(patch_transformers="llama"), "patch_transformers"),
    "patch_diffusers: None": (lambda: opened(patch_diffusers=None), "patch_diffusers"),
    "patch_sympy: text": (lambda: opened(patch_sympy=""), "patch_sympy"),
    "catch_constraints: None": (lambda: opened(catch_constraints=None), "catch_constraints"),
    "stop_if_static: text": (lambda: opened(stop_if_static="1"), "stop_if_static"),
    "stop_if_static: None": (lambda: opened(stop_if_static=None), "stop_if_static"),
    "verbose: text": (lambda: opened(verbose="1"), "verbose"),
    "dump_rewriting: a number": (lambda: opened(dump_rewriting=3), "dump_rewriting"),
    "dump_rewriting: None": (lambda: opened(dump_rewriting=None), "dump_rewriting"),
    "patch_details: a list": (lambda: opened(patch_details=[]), "patch_details"),
    "patch_details: the class": (lambda: opened(patch_details=eg.PatchDetails), "patch_details"),
    "custom_patches: None": (lambda: opened(custom_patches=None), "custom_patches"),
    "custom_patches: a number": (lambda: opened(custom_patches=3), "custom_patches"),
    "custom_patches: numbers": (lambda: opened(custom_patches=[3]), "custom_patches"),
    "custom_patches: None in it": (lambda: opened(custom_patches=[None]), "custom_patches"),
    "custom_patches: no file": (lambda: opened(custom_patches=["no_such_file.py"]), "no_such_file.py"),
    "custom_patches: a plain class": (lambda: opened(custom_patches=[Class]), "Class"),
    "custom_patches: a number for a path": (lambda: opened(custom_patches=[{3: len}]), "custom_patches"),
    "custom_patches: no function": (lambda: opened(custom_patches=[{"torch.relu": 3}]), "custom_patches"),
    "guard rewrite: a number": (lambda: opened(rewrite=3), "rewrite"),
    "additional: text": (
        lambda: entered(eg.register_additional_serialization_functions(patch_transformers="x")),  # type: ignore[arg-type]
        "patch_transformers",
    ),
    "class: an object": (lambda: registered(Class(), list, list), "cls"),
    "class: None": (lambda: registered(None, list, list), "cls"),
    "class: flatten": (lambda: registered(Class, 3, list), "flatten"),
    "class: unflatten": (lambda: registered(Class, list, None), "unflatten"),
    "class: keys": (lambda: registered(Class, list, list, keys=["a"]), "keys"),
    "class: an option": (lambda: registered(Class, list, list, names=list), "names"),
    "class: not registered": (lambda: eg.unregister_class_serialization(Class), "Class"),
    "save: a number": (lambda: converted().save(3), "path"),  # type: ignore[arg-type]
    "save: None": (lambda: converted().save(None), "path"),  # type: ignore[arg-type]
    "save: empty": (lambda: converted().save(""), "path"),
    "save: external_data": (lambda: converted().save("x.onnx", external_data="maybe"), "external_data"),  # type: ignore[arg-type]
    "check: full": (lambda: converted().check(full="yes"), "full"),  # type: ignore[arg-type]
    "run: a tensor": (lambda: converted().run(X), "inputs"),  # type: ignore[arg-type]
    "run: None": (lambda: converted().run(None), "inputs"),  # type: ignore[arg-type]
    "run: no input": (lambda: converted().run({}), "x"),
    "run: unknown input": (lambda: converted().run({"x": X, "z": X}), "z"),
    "run: a list": (lambda: converted().run({"x": [1.0]}), "x"),  # type: ignore[dict-item]
    "run: another dtype": (lambda: converted().run({"x": X.long()}), "x"),
    "run: a tensor on meta": (
        lambda: converted().run({"x": X.to("meta")}),
        "x must be a plain tensor with its numbers",
    ),
    "run: a fake tensor": (lambda: converted().run({"x": fake()}), "got a FakeTensor, which stands for others"),
    "run: a sparse tensor": (lambda: converted().run({"x": X.to_sparse()}), "pass x.to_dense()"),
    "run: a nested tensor": (lambda: converted().run({"x": nested()}), "pass torch.nested.to_padded_tensor(x, 0)"),
    "run: a quantized tensor": (lambda: converted().run({"x": quantized()}), "pass x.dequantize()"),
    "run: a fake tensor for torch's kernels": (lambda: converted().run({"x": fake()}, "evaluator"), "a FakeTensor"),
    "run: another rank": (lambda: converted().run({"x": X[0]}), "x"),
    "dynamic cache: a tensor": (lambda: eg.make_dynamic_cache(X), "key_values"),  # type: ignore[arg-type]
    "dynamic cache: None": (lambda: eg.make_dynamic_cache(None), "key_values"),  # type: ignore[arg-type]
    "dynamic cache: three": (lambda: eg.make_dynamic_cache([(X, X, X)]), "key_values"),  # type: ignore[list-item]
    "dynamic cache: numbers": (lambda: eg.make_dynamic_cache([(1, 2)]), "key_values"),  # type: ignore[list-item]
    "window cache: text": (lambda: eg.make_sliding_window_cache(PAIR, window="4"), "window"),  # type: ignore[arg-type]
    "window cache: 0": (lambda: eg.make_sliding_window_cache(PAIR, window=0), "window"),
    "static cache: short": (lambda: eg.make_static_cache(PAIR, max_cache_len=1), "max_cache_len"),
    "static cache: text": (lambda: eg.make_static_cache(PAIR, max_cache_len="9"), "max_cache_len"),  # type: ignore[arg-type]
    "hybrid cache: kinds": (lambda: eg.make_hybrid_cache(PAIR, layer_types=["other"], window=4), "layer_types"),
    "hybrid cache: count": (lambda: eg.make_hybrid_cache(PAIR, layer_types=[], window=4), "layer_types"),
    "pair of caches": (lambda: eg.make_encoder_decoder_cache(None, None), "self_attention_cache"),
    "prefix: a number": (lambda: eg.all_dynamic_shapes_from_inputs((X,), 3), "dim_prefix"),  # type: ignore[arg-type]
    "prefix: None": (lambda: eg.all_dynamic_shapes_from_inputs((X,), None), "dim_prefix"),  # type: ignore[arg-type]
    "calls: a number": (lambda: eg.check_inputs(module(), 3, None), "calls"),  # type: ignore[arg-type]
    "calls: a tensor": (lambda: eg.check_inputs(module(), [X], None), "call 0"),
    "calls: a number in it": (lambda: eg.check_inputs(module(), [3], None), "call 0"),
    "calls: no model": (lambda: eg.check_inputs(3, [(X,)], None), "model"),
    "observe: no model": (lambda: entered(eg.observe_inputs(3)), "model"),  # type: ignore[arg-type]
    "observed: no function": (lambda: eg.observed_dynamic_shapes(3, {"b": 2}), "make_inputs"),  # type: ignore[arg-type]
    "observed: sizes": (lambda: eg.observed_dynamic_shapes(lambda s: {}, 3), "sizes"),  # type: ignore[arg-type]
    "observed: a size": (lambda: eg.observed_dynamic_shapes(lambda s: {}, {"b": "2"}), "sizes"),  # type: ignore[dict-item]
    "export: a module": (lambda: eg.export_model(module(), "out"), "model must be the name of one"),  # type: ignore[arg-type]
    "export: no model": (lambda: eg.export_model(None, "out"), "model"),  # type: ignore[arg-type]
    "export: no output": (lambda: eg.export_model("llama", None), "output"),  # type: ignore[arg-type]
    "export: bytes": (lambda: eg.export_model("llama", b"out"), "output"),  # type: ignore[arg-type]
    "export: a zero": (lambda: eg.export_model("llama", "a\0b"), "output"),
    "export: options": (lambda: eg.export_model("llama", "out", {}), "options"),  # type: ignore[arg-type]
    "export: progress": (lambda: eg.export_model("llama", "out", progress=3), "progress"),  # type: ignore[arg-type]
    "folder: runtime": (lambda: eg.FolderOptions(runtime="ollama"), "runtime must be 'onnxruntime' or 'genai'"),  # type: ignore[arg-type]
    "folder: no runtime": (lambda: eg.FolderOptions(runtime=None), "runtime"),  # type: ignore[arg-type]
    "folder: a word of bits": (lambda: eg.FolderOptions(quantize="int4"), "quantize"),  # type: ignore[arg-type]
    "folder: opset": (lambda: eg.FolderOptions(opset="20"), "got '20'"),  # type: ignore[arg-type]
    "folder: verify": (lambda: eg.FolderOptions(verify="no"), "verify"),  # type: ignore[arg-type]
    "folder: a size in words": (lambda: eg.FolderOptions(shard_size="2GB"), "shard_size"),  # type: ignore[arg-type]
    "folder: no size": (lambda: eg.FolderOptions(shard_size=0), "shard_size"),
    "folder: build": (lambda: eg.FolderOptions(build=None), "build"),  # type: ignore[arg-type]
    "folder: an example": (lambda: eg.FolderOptions(examples={"x": X}), "examples"),  # type: ignore[arg-type]
    "folder: examples of numbers": (lambda: eg.FolderOptions(examples=[1]), "examples"),  # type: ignore[list-item]
    "folder: examples for nothing": (lambda: eg.FolderOptions(examples=[{"x": X}]), "int8-static"),
    "bits: 3": (lambda: eg.Quantization(bits=3), "bits"),
    "bits: text": (lambda: eg.Quantization(bits="4"), "bits"),  # type: ignore[arg-type]
    "bits: a block of 17": (lambda: eg.Quantization(block=17), "block"),
    "bits: a form": (lambda: eg.Quantization(form="x"), "form"),  # type: ignore[arg-type]
    "bits: symmetric": (lambda: eg.Quantization(symmetric=1), "symmetric"),  # type: ignore[arg-type]
    "build: a dtype in words": (lambda: BuildOptions(dtype="float16"), "dtype"),  # type: ignore[arg-type]
    "build: integers": (lambda: BuildOptions(dtype=torch.int8), "dtype"),
    "build: a task": (lambda: BuildOptions(task="poetry"), "unknown task 'poetry'"),
    "build: a device": (lambda: build_model("llama", BuildOptions(device="tpu9")), "device 'tpu9'"),
    "build: no device": (lambda: BuildOptions(device=None), "device"),  # type: ignore[arg-type]
    "build: a seed": (lambda: BuildOptions(seed=-1), "seed"),
    "load: a number": (lambda: eg.load(3), "source"),  # type: ignore[arg-type]
    "load: None": (lambda: eg.load(None), "source"),  # type: ignore[arg-type]
    "load: no file": (lambda: eg.load("no_such_file.onnx"), "no_such_file.onnx"),
    "load: no model": (lambda: eg.load(b"no model"), ""),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, part = CALLS[name]
    with pytest.raises(ExportGuardError, match=re.escape(part)):
        call()
    assert not list(tmp_path.iterdir())


def test_there_are_enough_of_them() -> None:
    assert len(CALLS) > 120
