"""Rewritten functions are written as a file, and put in force from it as long as the sources are those they are for."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from control_flow_program import up

from exportguard import (
    FileError,
    GuardError,
    InvalidArgumentError,
    export_with_rewriting,
    save_rewritten,
    to_onnx,
    torch_export_patches,
)

ROWS = ({0: torch.export.Dim.DYNAMIC},)

USERS = '''
import torch

BIAS = 3

def scaled(x, by: float = BIAS, *, shift: "int" = 1):
    """A default that the saved file does not know."""
    if x.max() > 1:
        x = x / by
    return x + shift

def twice(function):
    def wrapper(self, x):
        if x.sum() > 10:
            return function(self, x) * 2
        return function(self, x)
    return wrapper

class Base(torch.nn.Module):
    def forward(self, x):
        return x if x.min() > 0 else -x

class Model(Base):
    __private = 5

    @twice
    def forward(self, x):
        y = super().forward(x)
        if y.sum() > self.__private:
            y = scaled(y)
        return y
'''


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    return _module(tmp_path, monkeypatch, USERS)


def _module(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> types.ModuleType:
    file = folder / "users_code.py"
    file.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("users_code", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "users_code", module)
    spec.loader.exec_module(module)
    return module


def _save(users: types.ModuleType, path: Path) -> Path:
    result = export_with_rewriting(users.Model(), (up(3),), dynamic_shapes=ROWS)
    assert len(result.rewritten) == 4
    result.save(path)
    return path


def test_a_saved_file_mends_the_export_without_searching(users: types.ModuleType, tmp_path: Path) -> None:
    file = _save(users, tmp_path / "rewritten.py")
    code = users.scaled.__code__
    for custom in (str(file), [file], [_loaded(file)]):
        with torch_export_patches(custom_patches=custom) as guard:
            program = torch.export.export(users.Model(), (up(3),), dynamic_shapes=ROWS)
            assert guard.rewriting_steps == ()
        assert users.scaled.__code__ is code
    onnx = to_onnx(program)
    for case in (up(3), up(2, -1), up(5, 4), up(4, -9)):
        expected = users.Model()(case)
        torch.testing.assert_close(program.module()(case), expected)
        torch.testing.assert_close(next(iter(onnx.run({"x": case}).values())), expected)


def _loaded(file: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("loaded", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_saved_file_says_what_it_is_for(users: types.ModuleType, tmp_path: Path) -> None:
    text = _save(users, tmp_path / "rewritten.py").read_text(encoding="utf-8")
    assert f"torch {torch.__version__}" in text
    for target in ("Model.forward", "Base.forward", "scaled", "twice.<locals>.wrapper"):
        assert f'@replaces(\n    "users_code.{target}",\n    source="' in text
    assert "def users_code_scaled(x, by=..., *, shift=...):" in text


def test_errors_in_loaded_functions_point_into_the_saved_file(users: types.ModuleType, tmp_path: Path) -> None:
    file = _save(users, tmp_path / "rewritten.py")
    with torch_export_patches(custom_patches=[file]):
        assert users.scaled.__code__.co_filename == str(file)
        line = users.scaled.__code__.co_firstlineno
    assert "def users_code_scaled" in "".join(file.read_text(encoding="utf-8").splitlines()[line - 1 : line + 6])


def test_a_changed_source_is_refused_with_one_message_for_all(
    users: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _save(users, tmp_path / "rewritten.py")
    changed = USERS.replace("x / by", "x / by / 2").replace("function(self, x) * 2", "function(self, x) * 3")
    folder = tmp_path / "next"
    folder.mkdir()
    module = _module(folder, monkeypatch, changed)
    codes = [module.scaled.__code__, module.Base.forward.__code__]
    with pytest.raises(GuardError) as caught, torch_export_patches(custom_patches=[file]):
        pass
    message = str(caught.value)
    assert message.startswith(f"{file} does not fit what is installed: ")
    assert "users_code.scaled has changed since" in message
    assert "users_code.twice.<locals>.wrapper has changed since" in message
    assert "Base.forward" not in message
    assert message.endswith('export with rewrite="auto" and save it again')
    assert [module.scaled.__code__, module.Base.forward.__code__] == codes


def test_a_function_that_is_gone_is_refused(
    users: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _save(users, tmp_path / "rewritten.py")
    folder = tmp_path / "next"
    folder.mkdir()
    _module(folder, monkeypatch, USERS.replace("class Base", "class Root").replace("(Base)", "(Root)"))
    with pytest.raises(GuardError, match=r"there is no users_code\.Base"), torch_export_patches(custom_patches=[file]):
        pass


def test_a_function_without_a_name_to_find_it_by_is_not_saved(users: types.ModuleType, tmp_path: Path) -> None:
    result = export_with_rewriting(users.Base(), (up(3),), dynamic_shapes=ROWS)
    del users.Base
    with pytest.raises(InvalidArgumentError, match=r"users_code\.Base\.forward cannot be found by its name"):
        result.save(tmp_path / "rewritten.py")
    assert not (tmp_path / "rewritten.py").exists()


def test_a_file_that_is_not_there_or_defines_nothing_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(FileError, match="defines no rewritten function"), torch_export_patches(custom_patches=[empty]):
        pass
    with (
        pytest.raises(FileError, match=r"there is no file .*missing\.py"),
        torch_export_patches(custom_patches=str(tmp_path / "missing.py")),
    ):
        pass


def test_a_file_that_cannot_be_written_is_told(users: types.ModuleType, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written"):
        save_rewritten((), tmp_path / "no" / "folder.py")


SCRIPT = """
import sys, torch
sys.path.insert(0, {folder!r})
import users_code
from exportguard import export_with_rewriting
x = torch.linspace(0.1, 1.0, 12).reshape(3, 4)
export_with_rewriting(users_code.Model(), (x,), dynamic_shapes=({{0: torch.export.Dim.DYNAMIC}},)).save(sys.argv[1])
"""


def test_the_same_bytes_with_any_hash_seed(users: types.ModuleType, tmp_path: Path) -> None:
    texts = []
    for seed in ("0", "12345"):
        file = tmp_path / f"rewritten_{seed}.py"
        command = [sys.executable, "-c", SCRIPT.format(folder=str(tmp_path)), str(file)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, capture_output=True, env=environment)
        texts.append(file.read_bytes())
    assert re.search(rb"def Base_forward", texts[0])
    assert texts[0] == texts[1]
