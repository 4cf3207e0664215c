"""What became of the operator calls of one trace."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Counts:
    """In numbers of calls in repeated blocks, but for `blocks` and `markers`, which are blocks.

    `stamped` calls were replayed, until their block went another way.
    `stops` counts why blocks were traced to their end; `markers` counts the parts of blocks that were replayed to their
    end.
    """

    replayed: int = 0
    recorded: int = 0
    stamped: int = 0
    blocks: int = 0
    markers: int = 0
    stops: Counter[str] = field(default_factory=Counter)
