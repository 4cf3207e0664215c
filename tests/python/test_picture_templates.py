"""Patches know constructs: however a model calls its own variables, and wherever its lines end."""

from __future__ import annotations

import ast
import importlib
import types
from collections.abc import Iterator

import pytest

from exportguard.declaration.imports import module_exists
from exportguard.patches.transformers import (
    chosen_patches,
    drawn_patches,
    expert_loops,
    packed_attention,
    picture_grids,
    picture_loops,
    picture_mergers,
    picture_parts,
    picture_positions,
    picture_tiles,
    token_blocks,
)
from exportguard.source.errors import RewriteError
from exportguard.source.reading import definition_of
from exportguard.source.wrapping import innermost

RULES: dict[types.ModuleType, list[type[ast.NodeTransformer]]] = {
    chosen_patches: [chosen_patches.AllPictures],
    drawn_patches: [drawn_patches.AllPictures],
    expert_loops: [expert_loops.EveryExpert],
    packed_attention: [packed_attention.OneMaskedCall],
    picture_loops: [picture_loops.AllPictures],
    picture_mergers: [picture_mergers.AllBlocks],
    picture_parts: [picture_parts.Joined, picture_parts.Unchecked],
    picture_positions: [picture_positions.AllAtOnce],
    picture_tiles: [picture_tiles.AllTiles],
    token_blocks: [token_blocks.OneTokenAtATime],
}
MODELS = (
    "hunyuan_vl",
    "lfm2_vl",
    "lfm3_vl",
    "llava_next",
    "llava_onevision",
    "mistral3",
    "mixtral",
    "paddleocr_vl",
    "qwen2_5_vl",
    "qwen4_exp",
    "udop",
    "video_llama_3",
    "vilt",
)


class Renamed(ast.NodeTransformer):
    """Every variable of a function that is no parameter has another name."""

    def __init__(self, definition: ast.FunctionDef) -> None:
        self._own = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name) and is_stored(node)}
        self._own -= {argument.arg for argument in ast.walk(definition.args) if isinstance(argument, ast.arg)}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(f"{node.id}_of_another", node.ctx) if node.id in self._own else node


def is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def found_in(model: str) -> Iterator[tuple[ast.FunctionDef, list[type[ast.NodeTransformer]]]]:
    """Each function of a model that a patch looks at, with the rules of the patch."""
    path = f"transformers.models.{model}.modeling_{model}"
    module = importlib.import_module(path)
    for source, rules in RULES.items():
        for patch in source.PATCHES:
            for owner, name in patch.find(module):
                yield definition_of(innermost(vars(owner)[name])), rules


def changed(definition: ast.FunctionDef, rules: list[type[ast.NodeTransformer]]) -> bool:
    """Whether one of the rules finds what it rewrites, in a copy without comments and line breaks."""
    before = ast.unparse(definition)
    return any(ast.unparse(rule().visit(ast.parse(before).body[0])) != before for rule in rules)


@pytest.mark.parametrize("model", [name for name in MODELS if module_exists(f"transformers.models.{name}")])
def test_a_construct_is_found_under_other_names(model: str) -> None:
    found = list(found_in(model))
    rewritten = [definition.name for definition, rules in found if changed(definition, rules)]
    renamed = [definition.name for definition, rules in found if changed(Renamed(definition).visit(definition), rules)]
    assert renamed == rewritten != []


@pytest.mark.parametrize(
    "text",
    [
        "F.pad(counts.cumsum(0)[:-1], (1, 0))",
        "F.pad(\n    areas.cumsum(0)[ : -1],\n    (1, 0),\n)",
    ],
)
def test_starts_of_pictures_are_found_in_any_layout(text: str) -> None:
    made = ast.unparse(picture_grids.OwnStarts().visit(ast.parse(f"starts = {text}")))
    name = "areas" if "areas" in text else "counts"
    assert made == f"starts = {name}.cumsum(0) - {name}"


def test_a_loop_that_does_more_with_the_frames_stays() -> None:
    loop = """
def forward(self, gated, grid_thw):
    merge = 2
    found = []
    lengths = [t * h * w for t, h, w in grid_thw]
    for frames, (t, h, w) in zip(torch.split(gated, lengths, dim=0), grid_thw):
        frames = self.conv(frames.view(t, h // merge, w // merge, merge, merge, 4).permute(0, 5, 1, 3, 2, 4))
        found.append(frames{more}.reshape(t * h * w, 4))
    return torch.cat(found)
"""
    (plain,), (more,) = (ast.parse(loop.replace("{more}", text)).body for text in ("", ".relu()"))
    assert isinstance(plain, ast.FunctionDef)
    assert isinstance(more, ast.FunctionDef)
    assert changed(plain, [picture_loops.AllPictures])
    assert not changed(more, [picture_loops.AllPictures])


def attention_of_parts(more: str) -> str:
    return f"""
def forward(self, query, key, value, counts):
    parts = [torch.split(states, counts.tolist(), dim=2) for states in (query, key, value)]
    made = [self.attend(self, one, two, three, attention_mask=None)[0] for one, two, three in zip(*parts)]
    return torch.cat(made, dim=1){more}
"""


def test_parts_that_one_call_takes_become_one_call_with_a_mask() -> None:
    made = ast.unparse(packed_attention.OneMaskedCall().visit(ast.parse(attention_of_parts("")).body[0]))
    assert "parts = [(states,) for states in (query, key, value)]" in made
    assert "self.attend(self, one, two, three, attention_mask=packed_mask(counts, one))" in made


@pytest.mark.parametrize("more", [" + parts[0][0].mean()", " + sum(one.mean() for one in parts[2])"])
def test_parts_that_something_else_reads_are_refused(more: str) -> None:
    definition = ast.parse(attention_of_parts(more)).body[0]
    with pytest.raises(RewriteError, match="the parts in parts go where no mask tells them apart"):
        packed_attention.OneMaskedCall().visit(definition)
