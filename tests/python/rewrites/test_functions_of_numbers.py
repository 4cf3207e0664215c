"""Every function of `math`, every method of Python's numbers and every built-in function of one is exported as it is,
or refused with its line and the reason."""

from __future__ import annotations

import math
import random
import re

import pytest
import torch
from random_programs import model_of

from exportguard import RewriteError, to_onnx
from exportguard.rewrites.arithmetic import MATH

#: What functions are called with that take something else than one number: `f` is a float and `k` an int of data.
ARGUMENTS = {
    **dict.fromkeys(("acos", "asin", "atanh"), "f / 9"),
    **dict.fromkeys(("comb", "perm", "ldexp"), "k, 2"),
    **dict.fromkeys(("atan2", "fmod", "remainder", "nextafter", "copysign", "pow"), "f, 0.75"),
    **dict.fromkeys(("gcd", "lcm"), "k, 12"),
    **dict.fromkeys(("dist", "sumprod"), "[f, 1.0], [2.0, f]"),
    **dict.fromkeys(("fsum", "prod"), "[f, f, 2]"),
    **{"acosh": "f + 1", "factorial": "k", "isqrt": "k", "fma": "f, f, 1.0", "log": "f, 10", "hypot": "f, 2.0, f"},
    "isclose": "f, 0.5, rel_tol=0.25",
}
OF_MATH = [
    f"math.{name}({ARGUMENTS.get(name, 'f')})"
    for name, function in sorted(vars(math).items())
    if callable(function) and not name.startswith("_")
]
METHODS = [
    *("f.is_integer()", "(f * 0 + k).is_integer()", "f.conjugate()", "k.conjugate()", "k.bit_length()"),
    *("k.bit_count()", "f.as_integer_ratio()[0]", "k.as_integer_ratio()[0]", "len(f.hex())", "k.to_bytes(4, 'big')[3]"),
]
BUILT_IN = [
    *("abs(-f)", "bool(k)", "float(k)", "int(f)", "max(f, k)", "min(k, 3)", "pow(f, 2)", "round(f)", "round(f, 2)"),
    *("sum([f, k])", "sorted([f, 0.3, 0.9])[1]", "divmod(f, 0.3)[1]", "divmod(k, 3)[0]", "len(bin(k))", "len(oct(k))"),
    *(
        "len(hex(k))",
        "ord(chr(k))",
        "hash(k)",
        "len(str(k))",
        "len(format(k, 'b'))",
        "bytes(k)[0]",
        "complex(f, 1).real",
    ),
]
#: What no graph has, with what the refusal says.
REFUSED = {
    **dict.fromkeys(
        ("comb", "factorial", "frexp", "gamma", "gcd", "lcm", "nextafter", "perm", "ulp", "fsum"), "no graph has math"
    ),
    **dict.fromkeys(("f.as_integer_ratio", "hex()", "to_bytes"), "no graph has .*number of tensor data"),
    **dict.fromkeys(("bin(", "oct(", "hex(k", "chr(", "hash(", "bytes(k", "complex("), "has no texts, bytes or hashes"),
    **dict.fromkeys(("str(", "format("), "a text with a number of tensor data"),
}

_PROGRAM = """
import math
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        f = float(x.abs().mean()) + 0.05
        k = int(x.abs().sum()) + 1
        made = {expression}
        parts = made if isinstance(made, tuple) else (made,)
        return [x * part for part in parts]
"""


@pytest.mark.thinned(5)
@pytest.mark.parametrize("expression", [*OF_MATH, *METHODS, *BUILT_IN])
def test_a_function_of_a_number_is_exported_or_refused(expression: str) -> None:
    source = _PROGRAM.format(expression=expression)
    model = model_of(source, f"/numbers/{expression}.py")
    said = next((text for part, text in REFUSED.items() if re.search(rf"\b{re.escape(part)}", expression)), None)
    inputs = [
        torch.linspace(-1, 2.5, rows * 4).reshape(rows, 4) * scale for rows, scale in ((3, 0.3), (2, 1.0), (5, 2.0))
    ]
    if said is not None:
        with pytest.raises(RewriteError, match=f"(?s)line.*{said}"):
            to_onnx(model, (inputs[0],), dynamic_shapes=({0: "rows"},), rewrite="auto")
        return
    onnx = to_onnx(model, (inputs[0],), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in inputs:
        for found, wanted in zip(onnx.run({"x": x}).values(), model(x), strict=True):
            torch.testing.assert_close(found, wanted, check_dtype=False)


def test_roots_of_cubes_are_whole_and_remainders_python_s_to_the_last_digit() -> None:
    chosen = random.Random(0)
    for k in range(300):
        assert MATH["cbrt"](torch.tensor(-float(k**3), dtype=torch.float64)).item() == -k
    for _ in range(3000):
        number = chosen.choice([chosen.uniform(-1e3, 1e3), chosen.randint(-50, 50) / 4, chosen.uniform(-1e18, 1e18)])
        divisor = chosen.choice([chosen.uniform(0.1, 9), -chosen.randint(1, 9) / 2, math.inf, 1e-3])
        found = MATH["remainder"](*(torch.tensor(value, dtype=torch.float64) for value in (number, divisor)))
        assert found.item() == math.remainder(number, divisor)


@pytest.mark.parametrize(
    ("number", "power"), [(0.0, 1100), (-0.0, 10**6), (1e-300, 1100), (1.5, -1022), (1.7e308, -2000), (5e-324, 2000)]
)
def test_powers_of_two_that_are_no_floats(number: float, power: int) -> None:
    found = MATH["ldexp"](*(torch.tensor(value, dtype=torch.float64) for value in (number, power))).item()
    assert (found, math.copysign(1, found)) == (math.ldexp(number, power), math.copysign(1, number))


#: Programs that look a number up, with `ids` of a known length and `many` as long as the rows.
LOOK_UPS = {
    "a list": "ids.index(1)",
    "a list from a place on": "ids.index(1, 1)",
    "a tuple": "(3, 1, 2, 0).index(k)",
    "a list of Python's": "[0, 1, 2, 3].index(k)",
    "a range": "range(4).index(k)",
    "a list of a loop": "many.index(1)",
    "how often": "ids.count(1) + many.count(1)",
    "removed": "removed(ids, 1)",
    "missing at last": "[0, 1].index(k)",
}

_LOOKS_UP = """
import torch

def removed(ids, item):
    ids.remove(item)
    return ids[0] * 7 + ids[1] * 5 + ids[2]

class Model(torch.nn.Module):
    def forward(self, x):
        k = int(x[0].sum())
        ids = x[0].long().tolist()
        many = x[:, 0].long().tolist()
        return x * ({expression})
"""
ROWS = ((0, 1, 1, 0), (1, 0, 0, 0), (1, 0, 2, 0), (0, 0, 0, 0), (2, 0, 0, 1))


@pytest.mark.parametrize("name", LOOK_UPS)
def test_a_number_that_is_missing_ends_a_run_as_it_ends_python(name: str) -> None:
    """The numbers are looked up in eager mode, in the program and in its file, for which the first ones are there."""
    text = _LOOKS_UP.format(expression=LOOK_UPS[name])
    model = model_of(text, f"/numbers/{name}.py")
    cases = [torch.tensor([ROWS[k], *ROWS[: k + 1]], dtype=torch.float32) for k in (1, 0, 2, 3, 4)]
    cases = cases if name not in ("a list from a place on",) else [cases[1], *cases]
    onnx = to_onnx(model, (cases[0],), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in cases:
        try:
            wanted = model(x)
        except ValueError:
            with pytest.raises(Exception, match="out of data bounds"):
                onnx.run({"x": x})
            continue
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), wanted)


def test_a_handler_of_what_is_missing_is_named() -> None:
    source = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        ids = (x[0] > 0).long().tolist()
        try:
            k = ids.index(1)
        except ValueError:
            k = 7
        return x * k
"""
    model = model_of(source, "/numbers/handled.py")
    with pytest.raises(RewriteError, match="the `except` at line 7 of"):
        to_onnx(model, (torch.ones(2, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
