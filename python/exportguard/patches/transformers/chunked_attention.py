"""Attention within chunks of a text, as Canine has it: one call over all chunks instead of a loop over them.

How many chunks there are follows from the length of the text, and a loop over them makes that a constant.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import pad

from exportguard.declaration.expected import Expected, Expecting
from exportguard.declaration.patch import Patch, Verdict

_MODULE = "transformers.models.canine.modeling_canine"
_SIDES = ("attend_from_chunk_width", "attend_from_chunk_stride", "attend_to_chunk_width", "attend_to_chunk_stride")

_Forward = Callable[..., Any]

# Without annotations in torch 2.11 to 2.13.
_sym_max: Any = torch.sym_max


def over_all_chunks(original: _Forward) -> _Forward:
    """The same where chunks lie side by side; where they overlap, or attention is asked for, the loop stays.

    Behind the mask of tokens comes that of heads, in transformers 4, and whether attention is to be returned.
    """

    @functools.wraps(original)
    def forward(self: Any, hidden_states: torch.Tensor, attention_mask: Any = None, *args: Any, **kwargs: Any) -> Any:
        is_asked = any(asked is not None and asked is not False for asked in (*args, *kwargs.values()))
        widths = {getattr(self, side) for side in _SIDES}
        is_masked = isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 3
        is_plain = self.local and len(widths) == 1 and not self.first_position_attends_to_all
        if not is_plain or not is_masked or is_asked:
            return original(self, hidden_states, attention_mask, *args, **kwargs)
        chunks = _Chunks(hidden_states, attention_mask, widths.pop())
        keys, mask = chunks.states, chunks.mask
        if self.always_attend_to_first_position:
            keys = torch.cat([chunks.of_each(hidden_states[:, None, :1]), keys], dim=1)
            mask = torch.cat([chunks.rows(attention_mask[:, :, :1]), mask], dim=2)
        (found,) = self.self(chunks.states, keys, mask)
        return (self.output(chunks.joined(found), hidden_states),)

    return forward


class _Chunks:
    """A batch of texts, (batch, length, features), as (batch * chunks, width, features); the last chunk is filled up.

    `mask`, (batch * chunks, width, width), is what each place sees of its chunk. The model adds `(1 - mask) * lowest`
    to the scores, so that -inf hides what fills up altogether, where a place of the text that is masked is only low.
    """

    def __init__(self, states: torch.Tensor, mask: torch.Tensor, width: int) -> None:
        self._batch, self._length, self._width = states.shape[0], states.shape[1], width
        # Two at the least: what torch asks of a single one would bound the length.
        self._count = _sym_max((self._length + width - 1) // width, 2)
        self._missing = self._count * width - self._length
        self.states = self.rows(states)
        squares = pad(pad(mask.float(), (0, self._missing), value=-torch.inf), (0, 0, 0, self._missing))
        squares = squares.reshape(self._batch, self._count, width, self._count, width)
        self.mask = squares.diagonal(dim1=1, dim2=3).movedim(-1, 1).flatten(0, 1)

    def rows(self, values: torch.Tensor) -> torch.Tensor:
        """Values of each place, (batch, length, n), by chunks."""
        filled = pad(values, (0, 0, 0, self._missing))
        return filled.reshape(self._batch * self._count, self._width, values.shape[-1])

    def of_each(self, values: torch.Tensor) -> torch.Tensor:
        """What a text has once, (batch, 1, 1, n), for each of its chunks."""
        return values.expand(-1, self._count, -1, -1).flatten(0, 1)

    def joined(self, values: torch.Tensor) -> torch.Tensor:
        """The values of the places of the text, without what filled it up."""
        return values.reshape(self._batch, self._count * self._width, values.shape[-1])[:, : self._length]


_EXPECTED = (
    Expected(
        path=f"{_MODULE}.CanineAttention.forward",
        parameters="self, hidden_states, attention_mask, ...",
        has=(
            "zip($from_chunks, $to_chunks)",
            "attention_mask[:, $from_start:$from_end, $to_start:$to_end]",
            "torch.cat([$cls_position, $to_tensor_chunk], dim=1)",
            "$attention_output = self.output($attention_output, hidden_states)",
        ),
    ),
    Expected(
        path=f"{_MODULE}.CanineSelfAttention.forward",
        parameters="self, from_tensor, to_tensor, attention_mask, ...",
        has=("(1.0 - attention_mask.float()) * torch.finfo($scores.dtype).min",),
    ),
)


def _probe() -> Verdict:
    # Read anew in each process, as what is known by digests is torch's: transformers has other versions beside it.
    return Expecting(_EXPECTED)()


PATCHES = (
    Patch(
        name="attention within chunks",
        kind="transformers",
        target=f"{_MODULE}.CanineAttention.forward",
        reason="a loop goes over the chunks of a text, and fixes how many there are",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
        versions="transformers>=4.57",
        awaits=_MODULE,
        probe=_probe,
        replace=over_all_chunks,
    ),
)
