"""Arguments under the names that other exporters have for them: taken where they mean the same, else explained."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from .errors import InvalidArgumentError

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Other names of arguments of `to_onnx`.
_RENAMED = {"opset_version": "opset", "target_opset": "opset", "f": "output", "filename": "output"}

#: Arguments elsewhere, fields of `options` here.
_FIELDS = ("input_names", "output_names", "strict", "mutated_outputs", "repeats", "guard", "target")

#: What has another meaning, or none, here: what to write instead.
_INSTEAD = {
    "dynamic_axes": "write dynamic_shapes={'input': {0: 'batch'}}, by the names of forward's arguments; the axes of "
    "outputs follow from them",
    "output_dynamic_shapes": "leave it out: the axes of outputs follow from those of the inputs",
    "external_data": "write options=ExportOptions(external_data='always') or 'never'",
    "save_as_external_data": "write options=ExportOptions(external_data='always') or 'never'",
    "dynamo": "leave it out: a program of torch.export is what is converted",
    "do_constant_folding": "write optimize=True or optimize=False",
    "optimization": "write optimize=True or optimize=False",
    "custom_translation_table": "write dispatcher=Dispatcher({...})",
    "custom_opsets": "leave it out: the domains of your own operators are written as they are used",
    "export_params": "leave it out: the weights are written",
    "keep_initializers_as_inputs": "leave it out: weights are no inputs of the file",
    "operator_export_type": "leave it out: operators of your own get a converter, dispatcher=Dispatcher({...})",
    "training": "call model.eval() or model.train() before",
    "verbose": "set the level of logging.getLogger('exportguard')",
    "verify": "call exportguard.validate_module(module, inputs, dynamic_shapes)",
    "report": "use what is returned: its inputs, axes, text() and report()",
    "profile": "use what is returned: its inputs, axes, text() and report()",
    "dump_exported_program": "call torch.export.export in a torch_export_patches() block, and pass the program",
    "save_ep": "call torch.export.export in a torch_export_patches() block, and pass the program",
    "fallback": "leave it out: there is one exporter",
    "exporter": "leave it out: there is one exporter; `exportguard validate --export onnx-dynamo` runs torch's",
    "as_function": "leave it out",
    "use_control_flow_dispatcher": "leave it out: torch.cond, scan and while_loop are converted",
    "export_modules_as_functions": "leave it out; `OnnxModel.text(sources=True)` tells which module a node is of",
    "autograd_inlining": "leave it out",
}


def takes_foreign_names(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Lets a function with an argument `options` be called with the names above.

    Raises:
        InvalidArgumentError: an argument that has no such meaning here, with what to write instead, or one given twice.
    """
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        foreign = {name: value for name, value in kwargs.items() if name not in known}
        if not foreign:
            return function(*args, **kwargs)
        own: dict[str, Any] = {name: value for name, value in kwargs.items() if name in known}
        return function(*args, **_translated(own, foreign, known))

    return call


def _translated(
    own: Mapping[str, Any], foreign: Mapping[str, Any], known: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    result, fields = dict(own), {}
    for name, value in foreign.items():
        if name in _RENAMED:
            if _RENAMED[name] in result:
                raise InvalidArgumentError(f"{name} and {_RENAMED[name]} are the same argument; pass {_RENAMED[name]}")
            result[_RENAMED[name]] = value
        elif name in _FIELDS:
            fields[name] = value
        elif name != "dynamo" or value is not True:
            raise InvalidArgumentError(_refusal(name, known))
    if fields:
        options = result.get("options", known["options"].default)
        result["options"] = type(options)(**{**vars(options), **fields})
    return result


def _refusal(name: str, known: Mapping[str, inspect.Parameter]) -> str:
    if name in _INSTEAD:
        return f"to_onnx has no argument {name}: {_INSTEAD[name]}"
    return f"to_onnx has no argument {name}; it takes {', '.join(known)}, and the fields of ExportOptions in options"
