"""An operator call is traced once: torch.export of a model whose blocks repeat.

The Python of every block runs, always. What is remembered is what one operator call means: its operator, its scalars,
its sizes as expressions, and for each tensor "the n-th value of this block", or what it looks like at its first use. A
block that makes the calls of an earlier one gets tensors like those that the earlier one got, and nothing is traced;
one node, the marker, takes the place of its operators. At the first call that is another, what was replayed so far is
put into the graph, and torch traces as it always does. So a block that differs costs time, and never correctness.

- `kinds`: which modules are worth it
- `keys`: when two operator calls mean the same
- `likenesses`: fake tensors like those that a call returned
- `answers`: what fake kernels answered, for calls that are traced
- `paths`: the calls of blocks, as a tree of steps, and what is put into a graph for them
- `memory`: what is remembered from block to block of one trace
- `region`: one block while it runs
- `session`: one trace, with its blocks
- `questions`: what a model may ask of tensors beside that
- `markers`: the node that stands for a block, and its expansion
- `tracing`: the functions of torch that take part, for the patch that installs them
- `plan`: whether calls are traced once or all, for the time of an export
"""
