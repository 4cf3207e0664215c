"""What a model asks of its numbers where nothing is rewritten: the type has eager mode's answer, a text is refused."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from exportguard import ExportError, to_onnx

_ROWS = ({0: "rows"},)


class TellsASize(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        message = f"{n} rows"
        if n > 10_000:
            raise ValueError(message)
        torch._check(n > 0, lambda: f"no rows: {n}")
        require_rows(n > 0, f"{n} rows")
        return x * (2 if isinstance(n, int) else 5)


def require_rows(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


class TypeOfANumberOfData(torch.nn.Module):
    def forward(self, x):
        return x * (2 if isinstance(x.sum().long().item(), int) else 5)


class LooksUpASize(torch.nn.Module):
    def forward(self, x):
        return x * {"3": 2.0}.get(f"{x.shape[0]}", 1.0)


class KeyWithAHandler(torch.nn.Module):
    def forward(self, x):
        try:
            key = str(x.shape[0])
        except TypeError:
            key = "3"
        return x * {"3": 2.0}.get(key, 1.0)


class KeyBesideAMessage(torch.nn.Module):
    def forward(self, x):
        key = f"{x.shape[0]}"
        if len(x) > 100:
            raise ValueError(key)
        return x * {"3": 2.0}.get(key, 1.0)


class TextOfData(torch.nn.Module):
    def forward(self, x):
        return x * len(f"{x.sum()}")


@pytest.mark.parametrize("cls", [TellsASize, TypeOfANumberOfData])
def test_what_is_told_and_asked_is_that_of_eager_mode(cls: type[torch.nn.Module]) -> None:
    onnx = to_onnx(cls(), (torch.ones(3, 2),), dynamic_shapes=_ROWS)
    for rows in (1, 3, 5):
        torch.testing.assert_close(
            onnx.run({"x": torch.ones(rows, 2)})[onnx.outputs[0].name], 2 * torch.ones(rows, 2), check_dtype=False
        )


@pytest.mark.parametrize("cls", [LooksUpASize, KeyWithAHandler, KeyBesideAMessage, TextOfData])
def test_a_text_that_decides_is_refused_with_its_line(cls: type[torch.nn.Module]) -> None:
    with pytest.raises(ExportError, match=r"(?s)test_asking_without_rewriting.*test the number itself"):
        to_onnx(cls(), (torch.ones(3, 2),), dynamic_shapes=_ROWS)


_PACKAGE = """
import torch

def scale(n):
    return 2.0 if isinstance(n, int) else 5.0

def scale_by_type(n):
    return 2.0 if type(n) is int else 5.0

def scale_of(x):
    return 2.0 if type(x) is torch.Tensor else 5.0

def scale_by_class(n):
    return 2.0 if isinstance(int, type) and type("Number", (), {}).__name__ == "Number" and type(n) == int else 5.0
"""


scaling: Any = None  # the package, while it is tested


class AsksAPackage(torch.nn.Module):
    def forward(self, x):
        return x * scaling.scale(x.shape[0])


class AsksAPackageForTheType(torch.nn.Module):
    def forward(self, x):
        return x * scaling.scale_by_type(x.shape[0])


class AsksAPackageForATensor(torch.nn.Module):
    def forward(self, x):
        return x * scaling.scale_of(x)


class AsksAPackageThatMakesAClass(torch.nn.Module):
    def forward(self, x):
        return x * scaling.scale_by_class(x.shape[0])


_ASKING = (AsksAPackage, AsksAPackageForTheType, AsksAPackageForATensor, AsksAPackageThatMakesAClass)


@pytest.mark.parametrize("rewrite", [(), "auto"])
@pytest.mark.parametrize("cls", _ASKING)
def test_an_installed_package_has_the_answer_of_eager_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewrite: object, cls: type[torch.nn.Module]
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    file = folder / "scaling.py"
    file.write_text(_PACKAGE)
    package = types.ModuleType("scaling")
    package.__file__ = str(file)
    exec(compile(_PACKAGE, str(file), "exec"), vars(package))
    monkeypatch.setitem(sys.modules, "scaling", package)
    monkeypatch.setitem(globals(), "scaling", package)

    onnx = to_onnx(cls(), (torch.ones(3, 2),), dynamic_shapes=_ROWS, rewrite=rewrite)
    assert onnx.run({"x": torch.ones(4, 2)})[onnx.outputs[0].name].unique().tolist() == [2.0]
    assert not {"isinstance", "type"} & vars(package).keys()


class AsksForTheType(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        return x * (2 if type(n) is int else 5) + (1 if type(x) is torch.Tensor else 7)


@pytest.mark.parametrize("rewrite", [(), "auto"])
def test_the_type_of_a_size_and_of_a_tensor_is_that_of_eager_mode(rewrite: object) -> None:
    onnx = to_onnx(AsksForTheType(), (torch.ones(3, 2),), dynamic_shapes=_ROWS, rewrite=rewrite)
    assert onnx.run({"x": torch.ones(4, 2)})[onnx.outputs[0].name].unique().tolist() == [3.0]


class AsksNumpy(torch.nn.Module):
    def forward(self, x):
        return x * numpy.sqrt(x.shape[0])


@pytest.mark.parametrize("rewrite", [(), "auto"])
def test_numpy_of_a_size_is_refused_with_what_to_write(rewrite: object) -> None:
    with pytest.raises(ExportError, match=r"numpy is asked for the sqrt of a dynamic size.*math\.sqrt\(n\)"):
        to_onnx(AsksNumpy(), (torch.ones(3, 2),), dynamic_shapes=_ROWS, rewrite=rewrite)


class AsksForTheClass(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        return x * (2 if type(n) is int else 5) + (1 if n.__class__ is int else 7)


class IsManyTrue(torch.nn.Module):
    def forward(self, x):
        is_many = x.shape[0] > 0
        return x * (3 if is_many is True else 5)


class IsManyNotFalse(torch.nn.Module):
    def forward(self, x):
        is_many = x.shape[0] > 0
        if is_many is not False and self.training is False:
            return x * 3
        return x * 5


class MatchesTypes(torch.nn.Module):
    def forward(self, x):
        match x.shape[0]:
            case int():
                return x * 3
            case _:
                return x * 5


class MatchesInAHelper(torch.nn.Module):
    def forward(self, x):
        return sum(self.part(part) for part in (x, x.shape[0] > 0)) * 1.0

    def part(self, part):
        match part:
            case True:
                return 1
            case torch.Tensor():
                return part * 2
            case _:
                return 7


class MatchesAList(torch.nn.Module):
    def forward(self, x):
        total = x * 0
        for part in (x.shape[0], [x], {"x": x}):
            match part:
                case int(n) if n >= 0:
                    total = total + 1
                case [one]:
                    total = total + one
                case {"x": one}:
                    total = total + one
                case _:
                    total = total + 7
        return total


_ASKING_OTHERWISE = (AsksForTheClass, IsManyTrue, IsManyNotFalse, MatchesTypes, MatchesInAHelper, MatchesAList)


@pytest.mark.parametrize("rewrite", [(), "auto"])
@pytest.mark.parametrize("cls", _ASKING_OTHERWISE)
def test_what_is_more_than_a_function_has_the_answer_of_eager_mode(rewrite: Any, cls: type[torch.nn.Module]) -> None:
    model = cls().eval()
    before = cls.forward.__code__
    onnx = to_onnx(model, (torch.ones(3, 2),), dynamic_shapes=_ROWS, rewrite=rewrite)
    for rows in (2, 4):
        x = torch.ones(rows, 2)
        torch.testing.assert_close(onnx.run({"x": x})[onnx.outputs[0].name], model(x))
        assert model(x).unique().tolist() == [3.0]
    assert cls.forward.__code__ is before
