"""Control flow that depends on tensor data, rewritten so that torch.export can trace it.

`transform` rewrites one function, `selection` many of them as patches for the guard, `automatic` those that an export
stopped at. The rules are modules of `rules` with
`apply` and `ORDER`.
"""
