"""Where a runtime looks for the file, and what it wants to be told of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .shards import rename_data

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
    parts = {name: sorted(path.name for path in folder.glob(f"{name}.data*")) for name in files}
    for name, data in parts.items():
        if data:
            rename_data(folder / name, _js_name)
        (folder / name).rename(target / name)
        for file in data:
            (folder / file).rename(target / _js_name(file))

    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    # Without a dtype it looks for files named after one, such as model_quantized.onnx.
    counts = {Path(name).stem: len(data) for name, data in parts.items() if data}
    config["transformers.js_config"] = {"dtype": "fp32", **({"use_external_data_format": counts} if counts else {})}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _js_name(data: str) -> str:
    """The name there of a data file.

    >>> _js_name("model.onnx.data"), _js_name("model.onnx.data_2")
    ('model.onnx_data', 'model.onnx_data_2')
    """
    return data.replace(".onnx.data", ".onnx_data")
