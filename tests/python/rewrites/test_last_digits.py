"""What a file rounds or compares of functions of `math` is what C's functions make of a size, or is refused."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from called import Called
from exportguard import to_onnx
from exportguard.errors import ExportError

_SIZES = [*range(1, 130), 216, 243, 256, 343, 512, 729, 1000, 1024, 4096, 6561, 10000, 100000]
_FUNCTIONS = {
    **dict.fromkeys(("sqrt", "log", "log2", "log10", "log1p", "atan", "asinh", "cbrt", "sin", "cos", "tanh"), "n"),
    **dict.fromkeys(("exp", "exp2", "tan", "erf", "degrees"), "n / 8"),
}
_ROUNDED = ("int({})", "math.floor({})", "math.ceil({})", "round({})", "2 if {} > 3 else 1", "{} // 1")
_OUTER = ("exp({})", "log({})", "exp2({})", "log2({})", "tan({})", "sqrt({})", "log10({})", "expm1({})", "cosh({})")


_PROGRAM = """
import math
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        return {text}, x.sum()
"""


def _eager(text: str, size: int) -> float | None:
    """What Python makes of a size; None where it raises, or where an integer has more than 64 bits."""
    try:
        found = eval(text, {"math": math, "n": size})
    except (ArithmeticError, ValueError):
        return None
    return found if abs(found) < 2**62 else None


def is_right_or_refused(text: str, folder: Path) -> bool:
    """Whether the file has eager's numbers at all sizes, or is none."""
    path = folder / "written.py"
    path.write_text(_PROGRAM.format(text=text))
    names: dict[str, Any] = {"__name__": "written"}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), names)
    model = names["Model"]().eval()
    try:
        made = to_onnx(model, (torch.ones(6, 1),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    except ExportError as error:
        return _require_a_line(str(error))
    for size in _SIZES:
        want = _eager(text, size)
        if want is not None:
            (got, _) = made.run({"x": torch.ones(size, 1)}).values()
            assert float(got) == float(want), (text, size, got, want)
    return True


def _require_a_line(refusal: str) -> bool:
    assert "without C's last digit" in refusal
    assert "written.py:8" in refusal
    return False


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_one_function_is_rounded_as_c_rounds_it(name: str, tmp_path: Path) -> None:
    chosen = random.Random(name)
    value = f"math.{name}({_FUNCTIONS[name]})"
    assert all(is_right_or_refused(chosen.choice(_ROUNDED).format(value), tmp_path) for _ in range(2))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(40))
def test_what_is_made_of_several_is_right_or_refused(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    name = chosen.choice([*_FUNCTIONS])
    value = f"math.{name}({'n / 50' if 'n /' in _FUNCTIONS[name] else 'n + 1'})"
    if chosen.random() < 0.6:
        value = "math." + chosen.choice(_OUTER).format(f"{value} / 9" if chosen.random() < 0.3 else f"abs({value})")
    else:
        value = (
            f"{value} {chosen.choice('+-*/')} {chosen.choice(('math.pi', '3', '0.5', 'math.log2(n + 1)', 'n', '0.3'))}"
        )
    is_right_or_refused(chosen.choice(_ROUNDED).format(f"({value})"), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "int(math.exp2(math.log2(n)))",
        "int(math.pow(10, math.log10(n)))",
        "int(math.hypot(n, n) ** 2)",
        "int(math.tan(math.atan(n)))",
        "int(math.log10(n) / math.log10(2))",
        "1 if math.degrees(math.atan2(n, 8)) > 45 else 2",
        "1 if math.atan2(n, 8) * 180 / math.pi > 45 else 2",
        "math.ceil(math.cbrt(n / 8) * 2)",
        "int(math.tan(math.pi * n / 4))",
        "int(math.cosh(n / 8))",
    ],
)
def test_what_lies_on_whole_numbers_is_refused(text: str, tmp_path: Path) -> None:
    assert not is_right_or_refused(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "int(math.log10(n))",
        "math.ceil(math.log2(n))",
        "math.floor(math.log2(n) / 2) + 1",
        "int(math.log(n) / math.log(2))",
        "int(math.cbrt(n))",
        "int(math.hypot(3 * n, 4 * n))",
        "2 ** math.ceil(math.log2(n))",
        "int(n ** 0.5)",
        "int(math.exp(math.log(n)))",
    ],
)
def test_what_a_file_knows_is_exported(text: str, tmp_path: Path) -> None:
    assert is_right_or_refused(text, tmp_path)


def test_beside_a_tensor_the_last_digit_is_none(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * math.exp2(math.log2(x.shape[0])) / math.cosh(math.acosh(x.shape[0]))

    made = to_onnx(Called(function).eval(), (torch.ones(6, 1),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for size in (1, 3, 10):
        (got,) = made.run({"x": torch.ones(size, 1)}).values()
        torch.testing.assert_close(got, function(torch.ones(size, 1)))


# ---------------------------------------------------------------------------------------------------- sorted


def ordered(x: torch.Tensor) -> torch.Tensor:
    return torch.stack(sorted(x, key=lambda row: row[1], reverse=True))


def ordered_list(x: torch.Tensor) -> torch.Tensor:
    return torch.stack(sorted([x[0], x[1], x.mean(0)], key=lambda row: row[0]))


@pytest.mark.parametrize("function", [ordered, ordered_list])
def test_keys_of_nan_end_a_run(function: Any) -> None:
    made = to_onnx(Called(function).eval(), (torch.randn(5, 3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (2, 5, 7):
        x = torch.randn(rows, 3).round(decimals=0)
        (got,) = made.run({"x": x}).values()
        torch.testing.assert_close(got, function(x))
        with pytest.raises(Exception, match=r"(?i)index|bounds|indices"):
            made.run({"x": torch.where(torch.arange(rows)[:, None] == 1, torch.nan, x)})
