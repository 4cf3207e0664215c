"""Where a runtime looks for the file, and what it wants to be told of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from exportguard.optional import OptionalModule

onnx: Any = OptionalModule("onnx")

MODEL_FILE = "model.onnx"
_DATA = f"{MODEL_FILE}.data"

#: Of transformers.js 3 and 4: files in a folder of their own, weights under another name.
_JS_FOLDER, _JS_DATA = "onnx", "model.onnx_data"


def model_file(folder: Path) -> Path:
    """The file of an export, wherever its runtime wants it."""
    below = folder / _JS_FOLDER / MODEL_FILE
    return below if below.is_file() else folder / MODEL_FILE


def arrange_for_transformers_js(folder: Path) -> None:
    """Moves the file and its weights to where transformers.js loads them from, and says so in `config.json`.

    Raises:
        PackageError: there are weights beside the file, which is told their new name with onnx, and onnx is missing.
    """
    target = folder / _JS_FOLDER
    target.mkdir()
    has_data = (folder / _DATA).is_file()
    if has_data:
        _rename_data(folder / MODEL_FILE)
        (folder / _DATA).rename(target / _JS_DATA)
    (folder / MODEL_FILE).rename(target / MODEL_FILE)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    # Without a dtype it looks for files named after one, such as model_quantized.onnx.
    config["transformers.js_config"] = {"dtype": "fp32", **({"use_external_data_format": True} if has_data else {})}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _rename_data(file: Path) -> None:
    """Writes into the file the name that its weights will have."""
    model = onnx.load(str(file), load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = _JS_DATA
    onnx.save(model, str(file))
