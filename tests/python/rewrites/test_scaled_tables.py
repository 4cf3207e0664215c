"""Tables of positions that are scaled to the size of a picture, as vision transformers write it, by factors and sizes.

`python test_scaled_tables.py` compares all forms and prints how many are right.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from random_programs import model_of

from exportguard import ExportGuardError, to_onnx

_TEXT = """
import math

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Conv2d(3, 4, {patch}, {patch})
        self.positions = torch.nn.Parameter(torch.randn(1, 1 + {table} ** 2, 4))

    def scaled(self, x, height, width):
        patches = x.shape[1] - 1
        entries = self.positions.shape[1] - 1
        if patches == entries and height == width:
            return self.positions
        first, rest = self.positions[:, 0], self.positions[:, 1:]
        side = int(math.sqrt(entries))
        rows, columns = height // {patch}, width // {patch}
        {factors}
        rest = torch.nn.functional.interpolate(
            rest.reshape(1, side, side, 4).permute(0, 3, 1, 2), mode="{mode}", {scale}
        )
        {asserted}
        return torch.cat((first.unsqueeze(0), rest.permute(0, 2, 3, 1).reshape(1, -1, 4)), dim=1)

    def forward(self, pixels):
        height, width = pixels.shape[2:]
        x = self.project(pixels).flatten(2).transpose(1, 2)
        x = torch.cat((x.new_zeros(x.shape[0], 1, 4), x), dim=1)
        return x + self.scaled(x, height, width)
"""
#: What is computed of rows and columns, how it is given, and what is asserted of the result.
FORMS = {
    "float after adding": (
        "a, b = float(rows + 0.1) / side, float(columns + 0.1) / side",
        "scale_factor=(a, b)",
        "assert (rows, columns) == rest.shape[-2:]",
    ),
    "float before dividing": (
        "rows, columns = rows + 0.1, columns + 0.1",
        "scale_factor=(float(rows) / side, float(columns) / side)",
        "assert int(rows) == rest.shape[-2] and int(columns) == rest.shape[-1]",
    ),
    "root of the table": (
        "rows, columns = rows + 0.1, columns + 0.1",
        "scale_factor=(rows / math.sqrt(entries), columns / math.sqrt(entries))",
        "assert int(rows) == rest.shape[-2]",
    ),
    "list of factors": (
        "factors = [(n + 0.1) / side for n in (rows, columns)]",
        "scale_factor=factors",
        "assert rest.shape[2] == rows and rest.shape[3] == columns",
    ),
    "sizes": ("", "size=(rows, columns)", "assert rest.shape[-2:] == (rows, columns)"),
    "sizes of data": ("sizes = torch.tensor([rows, columns])", "size=(int(sizes[0]), int(sizes[1]))", ""),
    "float sizes": ("", "size=(int(float(rows)), int(float(columns)))", ""),
}


class Case(NamedTuple):
    form: str
    mode: str
    patch: int
    table: int


def cases() -> Iterator[Case]:
    return itertools.starmap(Case, itertools.product(FORMS, ("bicubic", "bilinear", "nearest"), (8, 14), (4, 7)))


def require_right(case: Case) -> None:
    """Exports a form with all axes free, and compares it at sizes around that of the table."""
    torch.manual_seed(0)
    factors, scale, asserted = FORMS[case.form]
    text = _TEXT.format(**case._asdict(), factors=factors, scale=scale, asserted=asserted)
    model = model_of(text, "/scaled tables.py")
    patch, table = case.patch, case.table
    given = torch.randn(2, 3, 3 * patch, 5 * patch)
    onnx = to_onnx(model, (given,), dynamic_shapes=({0: "b", 2: "h", 3: "w"},), rewrite="auto")
    sides = [(3, 5), (table, table), (1, table**2), (table**2, 1), (2, 8), (8, 2), (1, 1), (9, 4)]
    for (rows, columns), more in itertools.product(sides, (0, 3)):
        pixels = torch.randn(1, 3, rows * patch + more, columns * patch + more)
        (got,) = onnx.run({"pixels": pixels}).values()
        torch.testing.assert_close(torch.as_tensor(got), model(pixels), rtol=1e-4, atol=1e-4, msg=f"{pixels.shape}")


@pytest.mark.parametrize("case", cases(), ids=lambda case: "-".join(map(str, case)))
@pytest.mark.thinned(40)
def test_scaled_tables_are_right_at_all_sizes(case: Case) -> None:
    require_right(case)


def _main() -> None:
    outcomes = Counter[str]()
    for case in cases():
        try:
            require_right(case)
            outcomes["right"] += 1
        except (AssertionError, ExportGuardError) as error:
            print(case, type(error).__name__, str(error)[:300])
            outcomes[type(error).__name__] += 1
    print(dict(outcomes))


if __name__ == "__main__":
    _main()
