"""The layers that turn what a model returns for each token into one vector for each text.

They compute what the modules of sentence-transformers 6.2 compute (`sentence_transformers.base.modules`,
`sentence_transformers.sentence_transformer.modules`), whose folders say which of them stand behind a model. Each takes
and returns values by name: `token_embeddings` (batch, tokens, width), `attention_mask` (batch, tokens), and
`sentence_embedding` (batch, width).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..errors import InvalidArgumentError

TOKENS, MASK, SENTENCE = "token_embeddings", "attention_mask", "sentence_embedding"

Values = Mapping[str, torch.Tensor]

#: Ways of pooling, and the fields that asked for each of them before sentence-transformers 6, in the order of results.
POOLINGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
_LEAST = 1e-9  # what is divided by where no token is attended to


class Layer(torch.nn.Module):
    """Adds to the values by name; `reads` and `writes` are their names."""

    reads: Sequence[str] = (SENTENCE,)
    writes: str = SENTENCE


class Pooling(Layer):
    """One vector of a text in each of several ways, side by side."""

    reads = (TOKENS, MASK)

    def __init__(self, ways: Sequence[str]) -> None:
        super().__init__()
        self.ways = tuple(ways)

    def forward(self, values: Values) -> torch.Tensor:
        """Of padding on either side; a text without any token gives zeros, but its first token for `cls` and minus
        infinity for `max`."""
        tokens, mask = values[TOKENS], values[MASK]
        return torch.cat([_POOLED[way](tokens, mask) for way in self.ways], dim=-1)


def _first(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return _picked(tokens, mask.to(torch.int32).argmax(dim=1))


def _last(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    places = torch.arange(mask.shape[1], device=mask.device, dtype=torch.int32)
    last = (places * (mask != 0)).argmax(dim=1)
    return _picked(tokens * mask.unsqueeze(-1).to(tokens.dtype), last)


def _picked(tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return tokens.gather(1, places.view(-1, 1, 1).expand(-1, 1, tokens.shape[-1])).squeeze(1)


def _largest(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return tokens.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(dim=1)


def _mean(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    total, count = _sums(tokens, mask)
    return (total / count).to(tokens.dtype)


def _mean_by_root(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    total, count = _sums(tokens, mask)
    return (total / count.sqrt()).to(tokens.dtype)


def _sums(tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    wide = _wide(tokens.dtype)
    weights = mask.unsqueeze(-1).to(tokens.dtype)
    count = weights.sum(dim=1, dtype=wide).clamp(min=_LEAST)
    return (tokens * weights).sum(dim=1, dtype=wide), count


def _weighted_mean(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The first token that is attended to counts once, the next twice, and so on."""
    wide = _wide(tokens.dtype)
    places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device, dtype=wide)
    padding = mask.to(torch.int32).argmax(dim=1, keepdim=True)
    weights = (mask.to(wide) * (places - padding)).unsqueeze(-1)
    total = (tokens * weights).sum(dim=1)
    return (total / weights.sum(dim=1).clamp(min=_LEAST)).to(tokens.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What sums are kept in."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


_POOLED = {
    "cls": _first,
    "max": _largest,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_by_root,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}


class Dense(Layer):
    """A linear layer, an activation, and maybe what went in beside it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        given, made = int(config["in_features"]), int(config["out_features"])
        self.reads, self.writes = _ends(config)
        self.linear = torch.nn.Linear(given, made, bias=config.get("bias", True))
        self.activation = _activation(config.get("activation_function", "torch.nn.Tanh"))
        self.is_residual = bool(config.get("use_residual", False))
        if self.is_residual and given != made:
            self.residual = torch.nn.Linear(given, made, bias=False)

    def forward(self, values: Values) -> torch.Tensor:
        given = values[self.reads[0]]
        made: torch.Tensor = self.activation(self.linear(given))
        if not self.is_residual:
            return made
        return made + (self.residual(given) if hasattr(self, "residual") else given)


class Normalize(Layer):
    """Vectors of length one."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.reads, self.writes = _ends(config)

    def forward(self, values: Values) -> torch.Tensor:
        return torch.nn.functional.normalize(values[self.reads[0]], p=2.0, dim=-1)


class LayerNorm(Layer):
    """A norm of its own."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(int(config["dimension"]))

    def forward(self, values: Values) -> torch.Tensor:
        normed: torch.Tensor = self.norm(values[SENTENCE])
        return normed


class SentenceModel(torch.nn.Module):
    """A model with such layers behind it; returns `last_hidden_state` and what the layers made, by name."""

    def __init__(self, model: torch.nn.Module, layers: Mapping[str, Layer]) -> None:
        super().__init__()
        self.model = model
        for name, layer in layers.items():
            self.add_module(name, layer)
        self._names = {name: layer.writes for name, layer in layers.items()}
        taken = inspect.signature(model.forward).parameters
        self._taken = frozenset(name for name in (MASK, "token_type_ids") if name in taken)
        self._further = {"use_cache": False} if "use_cache" in taken else {}

    @property
    def config(self) -> Any:
        """That of the model."""
        return self.model.config

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """`attention_mask` is one where a token belongs to the text, and zero for padding."""
        known = {MASK: attention_mask, "token_type_ids": token_type_ids}
        given = {name: value for name, value in known.items() if name in self._taken and value is not None}
        hidden: torch.Tensor = self.model(input_ids=input_ids, **given, **self._further).last_hidden_state

        values, made = {TOKENS: hidden, MASK: attention_mask}, {"last_hidden_state": hidden}
        for name, writes in self._names.items():
            values[writes] = made[writes] = self.get_submodule(name)(values)
        return made


def require_fitting(layers: Mapping[str, Layer]) -> None:
    """Raises InvalidArgumentError where a layer reads what none before it makes."""
    made = {TOKENS, MASK}
    for name, layer in layers.items():
        lacking = sorted(set(layer.reads) - made)
        if lacking:
            raise InvalidArgumentError(
                f"{name} ({type(layer).__name__}) reads {', '.join(lacking)}, and what stands before it makes "
                f"{', '.join(sorted(made))} alone; see the folder's modules.json"
            )
        made.add(layer.writes)


def _ends(config: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """What is read and what is written."""
    read = config.get("module_input_name") or SENTENCE
    return (read,), config.get("module_output_name") or read


def _activation(name: str) -> torch.nn.Module:
    """A class of torch.nn by its full name.

    Raises:
        InvalidArgumentError: it is none, or wants arguments.
    """
    package, _, owner = str(name).rpartition(".")
    found = getattr(torch.nn, owner, None) if f"{package}.".startswith("torch.nn.") else None
    if not (inspect.isclass(found) and issubclass(found, torch.nn.Module)):
        raise InvalidArgumentError(
            f"the activation {name} of a Dense layer is no class of torch.nn; write a module that does it, and export "
            "path/file.py:function"
        )
    try:
        made: torch.nn.Module = found()
    except TypeError as error:
        raise InvalidArgumentError(f"the activation {name} of a Dense layer wants arguments: {error}") from error
    return made
