"""Gated delta rules: the forward substitution, written row by row, becomes the solution of a triangular system.

Unrolled, the loop over the rows of a chunk is some hundred operators for each layer, and minutes of tracing.
"""

from __future__ import annotations

from exportguard.source.templates import exchange

#: For the part N below the diagonal it is N + N² + N³ + …, which is (1 - N)⁻¹ N; the rest stays as it is.
SolveAtOnce = exchange(
    "SolveAtOnce",
    (
        """
for i in range(1, $size):
    row = $matrix[..., i, :i].clone()
    rows = $matrix[..., :i, :i].clone()
    $matrix[..., i, :i] = row + (row.unsqueeze(-1) * rows).sum(-2)
""",
        "$matrix = $matrix.triu() + torch.linalg.solve_triangular("
        "torch.eye($matrix.shape[-1], dtype=$matrix.dtype, device=$matrix.device) - $matrix.tril(-1), "
        "$matrix.tril(-1), upper=False, unitriangular=True)",
    ),
)
