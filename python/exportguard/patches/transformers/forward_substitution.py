"""Gated delta rules: the forward substitution, written row by row, becomes the solution of a triangular system.

Unrolled, the loop over the rows of a chunk is some hundred operators for each layer, and minutes of tracing.
"""

from __future__ import annotations

import ast

#: With the names of the number of the row, of the matrix, and of two helpers.
_BODY = """{row} = {matrix}[..., {i}, :{i}].clone()
{rows} = {matrix}[..., :{i}, :{i}].clone()
{matrix}[..., {i}, :{i}] = {row} + ({row}.unsqueeze(-1) * {rows}).sum(-2)"""
#: For the part N below the diagonal it is N + N² + N³ + …, which is (1 - N)⁻¹ N; the rest stays as it is.
_AT_ONCE = (
    "{matrix} = {matrix}.triu() + torch.linalg.solve_triangular("
    "torch.eye({matrix}.shape[-1], dtype={matrix}.dtype, device={matrix}.device) - {matrix}.tril(-1), "
    "{matrix}.tril(-1), upper=False, unitriangular=True)"
)


class SolveAtOnce(ast.NodeTransformer):
    """The loop over the rows of such a matrix becomes one statement."""

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        matrix = _matrix_of(node)
        if matrix is None:
            return node
        statement = ast.parse(_AT_ONCE.format(matrix=matrix)).body[0]
        return ast.fix_missing_locations(ast.copy_location(statement, node))


def _matrix_of(loop: ast.For) -> str | None:
    targets = [one.targets[0] for one in loop.body if isinstance(one, ast.Assign)]
    if not ast.unparse(loop.iter).startswith("range(1, ") or len(targets) != len(loop.body) or len(targets) != 3:
        return None
    row, rows, written = targets
    if not isinstance(written, ast.Subscript):
        return None
    names = {"row": ast.unparse(row), "rows": ast.unparse(rows), "i": ast.unparse(loop.target)}
    matrix = ast.unparse(written.value)
    return matrix if ast.unparse(ast.Module(loop.body, [])) == _BODY.format(matrix=matrix, **names) else None
