"""Which kinds of layers of the default model of each architecture its small model leaves out: a page.

`python benchmarks/kinds_of_layers.py -o docs/kinds_of_layers.md`, or with the names of architectures. No model is given
memory: some two minutes for all.
"""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import transformers

from exportguard.models import models_of_task
from exportguard.models.kinds import kinds_of_config, missing_kinds, shrunk_with_every_kind
from exportguard.models.tables import exceptions

logger = logging.getLogger(__name__)

#: Why a kind is left out.
_WHY = {
    "blt": "a projection between widths that are equal by default is none; in the small one it is one",
    "deepseek_v2": "the default router chooses no number of experts, which no weights have",
    "reformer": "buckets are drawn from the length of the first text and kept; the small one has them configured",
    "textnet": "a stage of one layer has no layer that keeps the size of its input",
    "xcodec": "the bandwidths of the default are too small for a codebook at the small rate of frames",
}

_HEAD = """# Kinds of layers

Made by `python benchmarks/kinds_of_layers.py -o docs/kinds_of_layers.md` with transformers {version}.

A small model (see [sweeping](sweeping.md)) stands for its architecture only if it has every kind of layer that the
default configuration has. A kind is a class of modules with what tells its instances apart: switches, words, and
whether something optional is there. Both models are built without memory and their kinds counted. Of {count}
architectures {whole} have every kind in their small model.
"""
_LEFT_OUT = "## Left out\n\n| architecture | kinds | why |\n|---|---|---|"
_NOT_COUNTED = """## Not counted

What stops the default configuration, or the small one.

| architecture | reason |
|---|---|"""


def kinds_left_out(names: Sequence[str]) -> Iterator[tuple[str, list[str] | None, str]]:
    """For each architecture the kinds that its small model has not, or None and why they cannot be counted."""
    for name in names:
        try:
            full = transformers.CONFIG_MAPPING[name]()
            small = shrunk_with_every_kind(full, exceptions().get(name, {}))
            missing = missing_kinds(kinds_of_config(full), kinds_of_config(small))
        except Exception as error:  # a configuration may raise whatever it likes
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            yield name, None, re.sub(r"'/[^']*/site-packages/", "'", first)
        else:
            yield name, [str(kind) for kind in missing], ""


def page(found: Sequence[tuple[str, list[str] | None, str]]) -> str:
    """The page in Markdown."""
    counted = [(name, kinds) for name, kinds, _ in found if kinds is not None]
    whole = sum(not kinds for _, kinds in counted)
    rows = [f"| {name} | {', '.join(kinds)} | {_WHY.get(name, '')} |" for name, kinds in counted if kinds]
    others = [f"| {name} | {reason.replace('|', '/')} |" for name, kinds, reason in found if kinds is None]
    head = _HEAD.format(version=transformers.__version__, count=len(counted), whole=whole)
    return "\n".join([head, _LEFT_OUT, *rows, "", _NOT_COUNTED, *others, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="architectures; all without any")
    parser.add_argument("-o", "--output", type=Path, help="the page")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    transformers.logging.set_verbosity_error()
    text = page(list(kinds_left_out(options.names or models_of_task("feature-extraction"))))
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        logger.info("%s", text)


if __name__ == "__main__":
    main()
