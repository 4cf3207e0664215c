"""Where a runtime looks for the file, and what it wants to be told of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exportguard.optional import OptionalModule

onnx: Any = OptionalModule("onnx")

MODEL_FILE = "model.onnx"

#: Of transformers.js 3 and 4: files in a folder of their own, weights under another name.
_JS_FOLDER = "onnx"


def file_of(folder: Path, name: str) -> Path:
    """A file of an export, wherever its runtime wants it."""
    below = folder / _JS_FOLDER / name
    return below if below.is_file() else folder / name


def arrange_for_transformers_js(folder: Path, files: Sequence[str] = (MODEL_FILE,)) -> None:
    """Moves the files and their weights to where transformers.js loads them from, and says so in `config.json`.

    Raises:
        PackageError: there are weights beside a file, which is told their new name with onnx, and onnx is missing.
    """
    target = folder / _JS_FOLDER
    target.mkdir()
    with_data = [name for name in files if (folder / f"{name}.data").is_file()]
    for name in with_data:
        _rename_data(folder / name, f"{name}_data")
        (folder / f"{name}.data").rename(target / f"{name}_data")
    for name in files:
        (folder / name).rename(target / name)

    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    # Without a dtype it looks for files named after one, such as model_quantized.onnx.
    data = {"use_external_data_format": {Path(name).stem: True for name in with_data}} if with_data else {}
    config["transformers.js_config"] = {"dtype": "fp32", **data}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _rename_data(file: Path, data_name: str) -> None:
    """Writes into the file the name that its weights will have."""
    model = onnx.load(str(file), load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = data_name
    onnx.save(model, str(file))
