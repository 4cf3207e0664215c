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

def scale_by_class_attribute(n):
    return 2.0 if n.__class__ is int else 5.0

def scale_by_match(n):
    match n:
        case bool():
            return 7.0
        case int() | float():
            return 2.0
        case _:
            return 5.0

def scale_by_match_of_parts(part):
    match part:
        case {"n": int(n) | float(n), **rest} if not rest:
            return 2.0 if n > 0 else 1.0
        case [True, *others]:
            return 2.0 * len(others)
        case _:
            return 5.0

def scale_by_truth(flag):
    return 2.0 if flag is True and flag is not False else 5.0

class Scales:
    def __init__(self, factor):
        self.factor = factor

    @property
    def own(self):
        return self.factor if self.__class__ is Scales else 5.0

    def of(self, n):
        return self.own if type(n) is int and (n > 0) is True else 5.0

    def __call__(self, n):
        return getattr(self, "of")(n)

    @staticmethod
    def nested(n):
        def asked(number):
            return 2.0 if number.__class__ is int and n.__class__ is int else 5.0
        return asked(n)

class Scaling(torch.nn.Module):
    def forward(self, x):
        flag = x.shape[0] > 0
        if x.sum() > 100 if self.training else False:
            x = x * 2
        match flag:
            case True:
                return x * 2
            case other:
                return x * 5

class ScalingByData(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        if x.sum() < 0:
            x = -x
        return x * (2.0 if n.__class__ is int else 5.0)
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


class AsksAPackageForTheClass(torch.nn.Module):
    def forward(self, x):
        return x * scaling.scale_by_class_attribute(x.shape[0])


class AsksAPackageThatMatches(torch.nn.Module):
    def forward(self, x):
        return x * scaling.scale_by_match(x.shape[0])


class AsksAPackageThatMatchesParts(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        scales = [scaling.scale_by_match_of_parts(part) for part in ({"n": n}, [n > 0, n])]
        return x * sum(scales) / len(scales)


class AsksAPackageForTheTruth(torch.nn.Module):
    def forward(self, x):
        return x * scaling.scale_by_truth(x.shape[0] > 0)


class AsksAnObjectOfAPackage(torch.nn.Module):
    def forward(self, x):
        return x * scaling.Scales(2.0)(x.shape[0])


class AsksAnObjectThatItHas(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = scaling.Scales(2.0)

    def forward(self, x):
        return x * self.scales(x.shape[0])


class AsksAFunctionInAFunction(torch.nn.Module):
    def forward(self, x):
        return x * scaling.Scales.nested(x.shape[0])


class AsksWhatItImports(torch.nn.Module):
    def forward(self, x):
        from scaling import scale_by_class_attribute

        return x * scale_by_class_attribute(x.shape[0])


class AsksAModuleOfAPackage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scaling = scaling.Scaling()

    def forward(self, x):
        return self.scaling(x)


_ASKING = (
    AsksAPackage,
    AsksAPackageForTheType,
    AsksAPackageForATensor,
    AsksAPackageThatMakesAClass,
    AsksAPackageForTheClass,
    AsksAPackageThatMatches,
    AsksAPackageThatMatchesParts,
    AsksAPackageForTheTruth,
    AsksAnObjectOfAPackage,
    AsksAnObjectThatItHas,
    AsksAFunctionInAFunction,
    AsksWhatItImports,
    AsksAModuleOfAPackage,
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    file = folder / "scaling.py"
    file.write_text(_PACKAGE)
    package = types.ModuleType("scaling")
    package.__file__ = str(file)
    exec(compile(_PACKAGE, str(file), "exec"), vars(package))
    monkeypatch.setitem(sys.modules, "scaling", package)
    monkeypatch.setitem(globals(), "scaling", package)
    return package


@pytest.mark.parametrize("rewrite", [(), "auto"])
@pytest.mark.parametrize("cls", _ASKING)
def test_an_installed_package_has_the_answer_of_eager_mode(
    installed: types.ModuleType, rewrite: Any, cls: type[torch.nn.Module]
) -> None:
    before = {name: getattr(value, "__code__", None) for name, value in vars(installed).items()}
    onnx = to_onnx(cls().eval(), (torch.ones(3, 2),), dynamic_shapes=_ROWS, rewrite=rewrite)
    assert onnx.run({"x": torch.ones(4, 2)})[onnx.outputs[0].name].unique().tolist() == [2.0]
    assert not {"isinstance", "type"} & vars(installed).keys()
    assert before == {name: getattr(value, "__code__", None) for name, value in vars(installed).items()}


def test_a_function_of_a_package_that_is_rewritten_answers_as_well(installed: types.ModuleType) -> None:
    x = torch.ones(3, 2)
    onnx = to_onnx(installed.ScalingByData().eval(), (x,), dynamic_shapes=_ROWS, rewrite="auto")
    for data in (torch.ones(4, 2), -torch.ones(2, 2)):
        assert onnx.run({"x": data})[onnx.outputs[0].name].unique().tolist() == [2.0]


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
        return x * numpy.cbrt(x.shape[0])


@pytest.mark.parametrize("rewrite", [(), "auto"])
def test_numpy_of_a_size_is_refused_with_what_to_write(rewrite: object) -> None:
    with pytest.raises(ExportError, match=r"numpy is asked for the cbrt of a dynamic size.*math\.cbrt\(n\)"):
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


class InvertsASize(torch.nn.Module):
    def forward(self, x):
        return x * ~x.shape[0]


@pytest.mark.parametrize("rewrite", [(), "auto"])
def test_the_bits_of_a_size_are_inverted(rewrite: Any) -> None:
    onnx = to_onnx(InvertsASize(), (torch.ones(3, 2),), dynamic_shapes=_ROWS, rewrite=rewrite)
    assert onnx.run({"x": torch.ones(5, 2)})[onnx.outputs[0].name].unique().tolist() == [-6.0]
    assert not hasattr(torch.SymInt, "__invert__")
