"""What stopped a model, in a cell of a table."""

from __future__ import annotations

import re


def short_reason(reason: str, length: int = 240) -> str:
    """On one line of a table: paths from the package on, no text of torch's about its own logging.

    >>> short_reason("by /x/site-packages/transformers/m.py:3: a | b\\nfor more")
    'by transformers/m.py:3: a \\\\| b for more'
    """
    text = re.sub(r"\S*/site-packages/", "", " ".join(reason.split())).split(" consider using data-dependent")[0]
    return (text if len(text) <= length else f"{text[: length - 1]}…").replace("|", "\\|").replace("<", "&lt;")
