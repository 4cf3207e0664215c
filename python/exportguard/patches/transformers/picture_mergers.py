"""Blocks of patches that become one token, in a loop over the pictures: gathered for all pictures at once."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import torch

from exportguard.patches.constructs import construct_patch
from exportguard.patches.rewriting import rewrite
from exportguard.patches.transformers.picture_grids import in_blocks

if TYPE_CHECKING:
    from exportguard._core import Changes


def as_grid(sizes: torch.Tensor, patch: int) -> torch.Tensor:
    """Heights and widths in pixels as frames, rows and columns of patches."""
    return torch.nn.functional.pad(sizes // patch, (1, 0), value=1)


#: A line of a loop over the pictures, and what the function does for all of them.
_MERGERS = {
    "tokens_per_image = [h * w for h, w in image_sizes]": """
blocks = in_blocks(image_features, as_grid(image_sizes, self.patch_size), self.spatial_merge_size)
return self.merging_layer(blocks.transpose(1, 2).flatten(1))
""",
    "image_features_chunks = image_features.split(image_grid_thw.prod(dim=1).tolist(), dim=0)": """
blocks = in_blocks(self.pre_norm(image_features), image_grid_thw, self.merge_kernel_size[0])
return self.linear_2(self.act(self.linear_1(blocks.flatten(1))))
""",
}


class AllBlocks(ast.NodeTransformer):
    """The body of a merger becomes a gather of all blocks and the layers that it applies to each."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        texts = [ast.unparse(statement) for statement in node.body]
        found = [body for line, body in _MERGERS.items() if line in texts]
        for body in found:
            node.body = [ast.copy_location(statement, node.body[0]) for statement in ast.parse(body).body]
        return ast.fix_missing_locations(node)


_replace = rewrite(AllBlocks, in_blocks=in_blocks, as_grid=as_grid)


def _install(changes: Changes, owner: Any, name: str) -> None:
    changes.set_attribute(owner, name, _replace(vars(owner)[name]))


PATCHES = (
    construct_patch(
        name="merging of patches",
        marker=r"tokens_per_image = \[h \* w for|image_features_chunks = image_features\.split\(",
        install=_install,
        reason="the loop over the pictures fixes how many there are, and the size of each",
        upstream="https://github.com/huggingface/transformers/pull/42822",
    ),
)
