"""Folders of sentence-transformers, exported and run beside sentence-transformers itself.

    python benchmarks/sentence_embeddings.py          # needs sentence-transformers
    python benchmarks/sentence_embeddings.py bert qwen3 --dtype float16

For each architecture an untrained model with each way of pooling, and with layers behind it, is saved by
sentence-transformers, exported, and run in onnxruntime on batches of texts padded in front or behind, one of them
empty where the model has numbers for it: the largest difference from `SentenceTransformer.forward` in the same dtype.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import tokenizers
import torch
import transformers
from sections import markdown_table
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling

import exportguard
from exportguard.errors import REFUSALS
from exportguard.models import BuildOptions, build_model

WORDS = 64
MODELS = (
    "bert", "roberta", "xlm-roberta", "distilbert", "mpnet", "albert", "electra", "camembert", "nomic_bert",
    "deberta-v2", "modernbert", "eurobert", "t5", "llama", "qwen3", "gemma3_text", "mistral", "bart", "fnet",
)  # fmt: skip
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
#: Differences that rounding explains, of vectors whose numbers are about one.
ALLOWED = {"float32": 2e-5, "float16": 2e-2, "bfloat16": 1.5e-1}


def forms(width: int) -> dict[str, list[Any]]:
    """The layers behind a model."""
    plain = {mode: [Pooling(width, mode)] for mode in Pooling.POOLING_MODES}
    return {
        **plain,
        "all, side by side": [Pooling(width, list(Pooling.POOLING_MODES))],
        "mean, normalized": [Pooling(width, "mean"), Normalize()],
        "mean, dense, normalized": [Pooling(width, "mean"), Dense(width, 48), Normalize()],
        "cls, two layers": [
            Pooling(width, "cls"),
            Dense(width, 48, activation_function=torch.nn.Identity(), bias=False),
            Dense(48, width, activation_function=torch.nn.GELU(), use_residual=True),
            LayerNorm(width),
            Dropout(0.5),
        ],
        "tokens of another width": [Dense(width, 8, module_input_name="token_embeddings"), Pooling(8, "max")],
    }


def saved_model(name: str, folder: Path) -> None:
    """A small untrained model with a tokenizer of made-up words."""
    torch.manual_seed(0)
    case = build_model(name, BuildOptions(task="feature-extraction"))
    config: Any = case.model.config
    text = config.get_text_config()
    words = {"[PAD]": 0, "[UNK]": 1, **{f"w{place}": place for place in range(2, min(WORDS, text.vocab_size))}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    case.model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]").save_pretrained(folder)


def width_of(model: Any) -> int:
    """Of the vectors of tokens."""
    config = model.config.get_text_config()
    return int(getattr(config, "d_model", None) or config.hidden_size)


def batches(sides: tuple[str, ...] = ("left", "right")) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Token numbers and masks: one text, several of other lengths, and an empty one among them."""
    draw = torch.Generator().manual_seed(1)
    yield "one", torch.randint(2, 60, (1, 7), generator=draw), torch.ones(1, 7, dtype=torch.int64)
    yield "one token", torch.randint(2, 60, (1, 1), generator=draw), torch.ones(1, 1, dtype=torch.int64)
    for side in sides:
        lengths = torch.tensor([9, 4, 1, 6, 9])
        places = torch.arange(9).expand(5, 9)
        seen = places < lengths[:, None] if side == "right" else places >= 9 - lengths[:, None]
        yield side, torch.randint(2, 60, (5, 9), generator=draw), seen.long()
    mask = torch.ones(3, 5, dtype=torch.int64)
    mask[1] = 0
    yield "empty", torch.randint(2, 60, (3, 5), generator=draw), mask


def difference(model: SentenceTransformer, session: onnxruntime.InferenceSession) -> tuple[float, str]:
    """The largest of all batches and its batch; infinite where one has numbers and the other has none."""
    worst = (0.0, "none")
    names = {value.name for value in session.get_inputs()}
    for name, ids, mask in batches():
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        inputs = {key: value for key, value in inputs.items() if key in names}
        with torch.no_grad():
            expected = model(dict(inputs))
        got = session.run(None, {key: value.numpy() for key, value in inputs.items()})
        for output, value in zip(session.get_outputs(), got, strict=True):
            key = "token_embeddings" if output.name == "last_hidden_state" else output.name
            if key == "token_embeddings" and expected[key].shape[-1] != value.shape[-1]:
                continue  # a layer made others of them
            found = torch.from_numpy(value.astype("float32"))
            wanted = expected[key].float()
            if not torch.equal(found.isfinite(), wanted.isfinite()):
                return float("inf"), f"{name}, {key}"
            apart = (found - wanted).nan_to_num(0.0, 0.0, 0.0).abs().max().item()
            worst = max(worst, (apart, f"{name}, {key}"))
    return worst


def row(name: str, form: str, dtype: str) -> list[str]:
    """What became of one model with the layers of that form."""
    with tempfile.TemporaryDirectory() as place:
        plain, saved, out = (Path(place) / part for part in ("model", "sentences", "out"))
        try:
            saved_model(name, plain)
            words = Transformer(str(plain))
            SentenceTransformer(modules=[words, *forms(width_of(words.model))[form]]).save(str(saved))
        except (*REFUSALS, OSError, ImportError) as error:
            return [name, form, dtype, f"left out: {type(error).__name__}: {str(error).splitlines()[0][:80]}"]
        options = exportguard.FolderOptions(build=BuildOptions(dtype=DTYPES[dtype]))
        try:
            exportguard.export_model(saved, out, options)
        except exportguard.ExportGuardError as error:
            return [name, form, dtype, f"refused: {str(error).splitlines()[0][:160]}"]
        model = SentenceTransformer(str(saved), device="cpu").to(DTYPES[dtype]).eval()
        session = onnxruntime.InferenceSession(str(out / "model.onnx"), providers=["CPUExecutionProvider"])
        apart, where = difference(model, session)
    told = "right" if apart <= ALLOWED[dtype] else "DIFFERENT"
    return [name, form, dtype, f"{told}: {apart:.1e} ({where})"]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float32")
    parser.add_argument("--form", help="of these layers alone")
    options = parser.parse_args()
    print("".join(markdown_table(["model", "behind it", "dtype", "largest difference"], [])), end="", flush=True)
    for name in options.models:
        for form in [options.form] if options.form else forms(1):
            print(f"| {' | '.join(row(name, form, options.dtype))} |", flush=True)


if __name__ == "__main__":
    main()
