"""Convolutions of audio codecs: how far they pad is counted in whole numbers rather than in tensors."""

from __future__ import annotations

import ast
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import Exchange, Template

_COUNTED = "_get_extra_padding_for_conv1d"


def stride_of(module: Any) -> int:
    """The stride of the module's convolution, which the module also keeps as a tensor."""
    stride: int = module.conv.stride[0]
    return stride


def padding_of(module: Any) -> int:
    """What the convolution's kernel reaches beyond its stride, on both ends together."""
    span: int = (module.conv.kernel_size[0] - 1) * module.conv.dilation[0] + 1
    return span - stride_of(module)


def extra_padding(module: object, hidden_states: torch.Tensor) -> Any:
    """What is missing for the last frame to be a whole one."""
    return -hidden_states.shape[-1] % stride_of(module)


_TOTAL = Template("self.padding_total")


class WholeNumbers(Exchange):
    """`self.padding_total` becomes `padding_of(self)`, and what the last frame is short of a modulus of sizes."""

    pairs = ((_TOTAL, Template("padding_of(self)")),)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name != _COUNTED:
            self.generic_visit(node)
        else:
            node.body = ast.parse("return extra_padding(self, hidden_states)").body
        return ast.fix_missing_locations(node)


_replace = rewrite(WholeNumbers, padding_of=padding_of, extra_padding=extra_padding)


PATCHES = (
    construct_patch(
        name="paddings of audio codecs",
        marker=rf"\b{_COUNTED}\(",
        mentions=(f"{_COUNTED}(",),
        replace=_replace,
        has=lambda function: bool(_TOTAL.within(function)),
        reason="the sizes of the padding are computed as tensors, whose values torch.export does not know",
        upstream="https://github.com/huggingface/transformers/pull/39431",
    ),
)
