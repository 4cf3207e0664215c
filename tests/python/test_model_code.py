"""One answer to what is the user's code, and nobody else who gives another."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import types
from pathlib import Path

import numpy
import pytest
import sympy
import torch
import transformers

import exportguard
from exportguard import _core, model_code
from exportguard.model_code import is_users, is_users_class, is_users_module

ROOT = Path(exportguard.__file__).parents[2]


@pytest.mark.parametrize(
    "file",
    [
        "/home/somebody/model.py",
        "<ipython-input-3-abc>",
        "<doctest model[0]>",
        __file__,
        transformers.__file__,
        f"{sysconfig.get_path('purelib')}/timm/layers.py",
        f"{torch.__file__.removesuffix('/torch/__init__.py')}/torchaudio/models/x.py",
    ],
)
def test_models_and_their_libraries_are_the_users(file: str) -> None:
    assert is_users(file)


def test_packages_within_pythons_own_folder_are_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = f"{sysconfig.get_path('stdlib')}/site-packages"
    monkeypatch.setattr(model_code, "_installed", lambda: (f"{folder}/",))
    assert is_users.__wrapped__(f"{folder}/timm/layers.py")
    assert not is_users.__wrapped__(f"{sysconfig.get_path('stdlib')}/json/decoder.py")


@pytest.mark.parametrize(
    "file",
    [torch.__file__, sympy.__file__, exportguard.__file__, json.__file__, "<string>", "<eval_with_key>.7"],
)
def test_what_runs_a_model_is_not(file: str) -> None:
    assert not is_users(file)


def test_classes_are_told_by_where_they_are_defined() -> None:
    class Own(torch.nn.Module):
        pass

    assert is_users_class(Own)
    assert is_users_class(transformers.LlamaConfig)
    assert not any(is_users_class(cls) for cls in (torch.nn.Linear, object, dict, Path))


def test_nobody_else_defines_it() -> None:
    """Other definitions began with the folder of torch; what asks for that one in particular says so."""
    folder = re.compile(r"(dirname|Path|parent)\(?.{0,20}torch\.__file__")
    files = [path for path in (ROOT / "python" / "exportguard").rglob("*.py") if folder.search(path.read_text("utf-8"))]
    assert [path.name for path in files] == ["recording.py"]  # which of torch's files ask about sizes


def test_the_source_of_a_node_is_a_line_of_the_model() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(x, 5).sum(-1)  # runs in a patch of this package

    with exportguard.torch_export_patches():
        program = torch.export.export(Model(), (torch.tensor([1, 2]),))
    text = _core.import_program(program).text(sources=True)
    assert Path(__file__).name in text
    assert "one_hot.py" not in text


def test_arrays_are_no_code_of_the_model() -> None:
    assert not is_users_module(numpy)
    assert not is_users_module(sys)
    assert is_users_module(types.ModuleType("of_a_notebook"))
    assert not is_users_class(numpy.ndarray)


def test_a_class_of_torch_with_a_function_of_somebody_else_is_still_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(torch.nn.Module):
        pass

    monkeypatch.setattr(torch.nn.Bilinear, "extra_repr", lambda self: "somebody's")
    assert not is_users_class(torch.nn.Bilinear)
    assert is_users_class(Own)
