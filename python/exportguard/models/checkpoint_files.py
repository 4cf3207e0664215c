"""What is wrong with the files of a checkpoint, told before anything is loaded: libraries pass over much of it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import FileError, InvalidArgumentError
from ..optional import OptionalModule

transformers_logging: Any = OptionalModule("transformers.utils.logging")

#: Those that transformers reads of a folder. It goes on without one that is broken, or tells it in another's words.
_READ = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
)

#: Suffixes of what browsers and loaders of files have not finished.
_UNFINISHED = {".incomplete", ".part", ".partial", ".crdownload", ".aria2", ".tmp"}
_SHOWN = 80  # letters of a name in a message
_POINTER = b"version https://git-lfs"

#: What a file that is passed for a model is, by its suffix, and what to do with it.
_FILES = {
    ".onnx": "it is an ONNX file: `exportguard optimize` and `exportguard compare` take those",
    ".pt2": "it is an exported program: exportguard.to_onnx(torch.export.load(path)) converts it",
    ".pt": "its class is not known: pass path/file.py:function that makes the module and loads it",
    ".pth": "its class is not known: pass path/file.py:function that makes the module and loads it",
    ".gguf": "its weights are in few bits: pass the checkpoint that they were made from",
}


def require_reachable(name: str) -> None:
    """Raises FileError if the system cannot say what the name of a model is, or does not let its folder be read."""
    shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
    try:
        is_folder = stat.S_ISDIR(os.stat(name).st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return  # no folder: the name of something else
    except OSError as error:
        raise FileError(f"cannot read {shown}: {error.strerror}; pass a folder, a hub id or an architecture") from error
    if not os.access(name, os.R_OK | (os.X_OK if is_folder else 0)):
        raise FileError(f"cannot read {shown}: {os.strerror(errno.EACCES)}; pass a folder that you may read")


def require_no_file(name: str) -> None:
    """Raises InvalidArgumentError if the name of a model is that of a file: a model is a folder of several."""
    path = Path(name)
    if "\0" in name or not path.is_file():
        return
    remedy = _FILES.get(path.suffix.lower(), f"pass the folder that it lies in, {path.parent}")
    raise InvalidArgumentError(f"{name} is a file, and no folder with a model in it; {remedy}")


def require_whole_download(folder: Path) -> None:
    """What an unfinished download of a checkpoint leaves, before anything of it is read.

    Raises:
        FileError: a file is git-lfs's pointer to it, or an index names files that are not there.
    """
    for path in (folder / name for name in (*_READ, *(path.name for path in _weight_files(folder)))):
        if path.is_file() and _is_pointer(path):
            raise FileError(
                f"{path} is git-lfs's pointer to the file and not the file itself; run `git lfs pull` in {folder}"
            )
    for index in (folder / name for name in _READ if name.endswith(".index.json")):
        named = _named_files(index)
        missing = [name for name in named if not (folder / name).is_file()]
        if missing:
            raise FileError(
                f"{folder} lacks {len(missing)} of the {len(named)} files that {index.name} names "
                f"({', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}); finish the download"
            )


def unfinished_files(folder: Path) -> list[str]:
    """The names of files that downloads have not finished."""
    return sorted(path.name for path in folder.iterdir() if path.suffix.lower() in _UNFINISHED)


def _weight_files(folder: Path) -> list[Path]:
    return [path for pattern in ("*.safetensors", "*.bin") for path in sorted(folder.glob(pattern))]


def _is_pointer(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER
    return False


def _named_files(index: Path) -> list[str]:
    """Those that the weights lie in; [] of an index that cannot be read, which is told of elsewhere."""
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return []
    return sorted(name for name in names if isinstance(name, str))


def require_whole_texts(folder: Path) -> None:
    """Raises FileError if a file that should be JSON is none."""
    for path in (folder / name for name in _READ):
        try:
            content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        except (OSError, ValueError) as error:
            raise FileError(f"cannot read {path}: {error}; copy it again") from error
        if not isinstance(content, dict):
            raise FileError(f"cannot read {path}: it holds a {type(content).__name__} and no fields; copy it again")


def file_beside(config: object, name: str) -> Path | None:
    """A file in the folder that a configuration was read from, if it was: the working folder is no model's own."""
    folder = str(getattr(config, "_name_or_path", ""))
    path = Path(folder) / name
    return path if folder and path.is_file() else None


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Its own report of weights that do not fit has a line for each; ours names them in one."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)
