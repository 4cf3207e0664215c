"""Exports small untrained models for optimum, loads each with its ORTModelFor… and compares with the model itself.

Runs where optimum-onnx imports, which needs transformers 4: `pip install optimum-onnx` beside transformers 4.57.

    python benchmarks/optimum_by_model.py                  # all of the list below
    python benchmarks/optimum_by_model.py llama t5 bert    # some of its architectures
    python benchmarks/optimum_by_model.py -t fill-mask     # one of its tasks

"ok" means: the same tokens for a batch of two texts of different lengths, or for other tasks the same outputs. Each
model has a process of its own.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import optimum.onnxruntime
import torch

from exportguard.models import BuildOptions, ModelCase, build_model
from exportguard.ship import FolderOptions, export_model
from exportguard.ship.encoder_decoder import source_of

NEW_TOKENS = 6

#: For each task the class that loads it, and architectures.
TASKS: Mapping[str, tuple[str, str]] = {
    "text-generation": (
        "ORTModelForCausalLM",
        "llama qwen2 qwen3 phi phi3 mistral gemma gemma2 gemma3_text gpt2 gpt_neo gpt_neox gptj opt granite olmo olmo2 "
        "starcoder2 stablelm cohere smollm3 glm helium biogpt codegen persimmon nemotron falcon bloom",
    ),
    "text2text-generation": (
        "ORTModelForSeq2SeqLM",
        "t5 mt5 bart mbart pegasus marian blenderbot blenderbot-small m2m_100 longt5 umt5",
    ),
    "automatic-speech-recognition": ("ORTModelForSpeechSeq2Seq", "whisper speech_to_text"),
    "fill-mask": (
        "ORTModelForMaskedLM",
        "bert roberta distilbert albert electra deberta-v2 mpnet camembert modernbert",
    ),
    "text-classification": ("ORTModelForSequenceClassification", "bert roberta distilbert electra xlm-roberta"),
    "token-classification": ("ORTModelForTokenClassification", "bert distilbert roberta mobilebert squeezebert"),
    "question-answering": ("ORTModelForQuestionAnswering", "bert roberta albert convbert"),
    "multiple-choice": ("ORTModelForMultipleChoice", "bert roberta camembert"),
    "feature-extraction": ("ORTModelForFeatureExtraction", "bert distilbert nystromformer roformer"),
    "image-classification": (
        "ORTModelForImageClassification",
        "vit deit beit resnet convnext swin mobilenet_v2 dinov2 regnet",
    ),
    "semantic-segmentation": ("ORTModelForSemanticSegmentation", "segformer dpt"),
    "audio-classification": ("ORTModelForAudioClassification", "wav2vec2 hubert wavlm audio-spectrogram-transformer"),
    "audio-frame-classification": ("ORTModelForAudioFrameClassification", "wav2vec2 wavlm"),
    "audio-xvector": ("ORTModelForAudioXVector", "wav2vec2 data2vec-audio"),
    "ctc": ("ORTModelForCTC", "wav2vec2 hubert sew unispeech"),
    "zero-shot-image-classification": ("ORTModelForZeroShotImageClassification", "clip siglip"),
}


def generation_inputs(case: ModelCase) -> dict[str, torch.Tensor]:
    """Two texts, the shorter one padded: in front for a decoder, behind for an encoder; or recordings."""
    model: Any = case.model
    if case.task.name == "automatic-speech-recognition":
        return dict(source_of(case).inputs)
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.randint(3, vocabulary, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if case.task.name == "text-generation":
        mask[1, :3] = 0
    else:
        mask[1, -3:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def tokens_differ(case: ModelCase, loaded: Any) -> str:
    """Empty if both generate the same tokens."""
    inputs = generation_inputs(case)
    settings = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False, "num_beams": 1}
    model: Any = case.model
    with torch.no_grad():
        expected = model.generate(**inputs, pad_token_id=0, **settings)
    got = loaded.generate(**inputs, pad_token_id=0, **settings)
    return "" if torch.equal(got, expected) else f"generates {got.tolist()}, not {expected.tolist()}"


def outputs_differ(case: ModelCase, loaded: Any) -> str:
    """Empty if every output that is loaded is what the model computes, at other sizes than the traced ones."""
    sizes = {name: size + 1 for name, size in case.task.sizes.items()}
    inputs = case.inputs(sizes)
    with torch.no_grad():
        expected, got = case.model(**inputs), loaded(**inputs)
    tensors = {name: value for name, value in got.items() if isinstance(value, torch.Tensor)}
    compared = [name for name in tensors if isinstance(expected.get(name), torch.Tensor)]
    if not compared:
        return f"no output has a name of the model's: {', '.join(got)}"
    wrong = [name for name in compared if not torch.allclose(got[name], expected[name], rtol=1e-3, atol=1e-4)]
    return ", ".join(f"{name} differs by {float((got[name] - expected[name]).abs().max()):.1e}" for name in wrong)


def outcome(name: str, task: str) -> str:
    """What became of one model; empty if it agrees."""
    build = BuildOptions(task=task)
    with tempfile.TemporaryDirectory() as folder:
        export_model(name, Path(folder) / "out", FolderOptions(runtime="optimum", build=build))
        loaded = getattr(optimum.onnxruntime, TASKS[task][0]).from_pretrained(Path(folder) / "out")
        case = build_model(name, build)
        is_generation = case.task.cached
        return tokens_differ(case, loaded) if is_generation else outputs_differ(case, loaded)


def told(name: str, task: str, connection: Any) -> None:
    """The outcome of one model through a pipe."""
    torch.set_num_threads(1)
    try:
        connection.send(outcome(name, task))
    except Exception as error:  # of the model, of the exporter or of optimum: each is a result
        connection.send(f"{type(error).__name__}: {error}".replace("\n", " ")[:300])


def in_a_process(name: str, task: str) -> str:
    """The same, whatever becomes of the process."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=told, args=(name, task, there))
    process.start()
    there.close()
    try:
        return str(here.recv())
    except EOFError:
        return "the process ended"
    finally:
        process.join()


def chosen(models: list[str], task: str | None) -> Iterator[tuple[str, str]]:
    """The pairs of architecture and task that are asked for."""
    for one, (_, names) in TASKS.items():
        if task in (None, one):
            yield from ((name, one) for name in names.split() if not models or name in models)


def main() -> None:
    """Prints a line for each model, and how many there are of each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("-t", "--task", choices=tuple(TASKS), default=None)
    options = parser.parse_args()
    agreed: dict[str, list[str]] = collections.defaultdict(list)
    count = 0
    for name, task in chosen(options.models, options.task):
        difference = in_a_process(name, task)
        count += 1
        if not difference:
            agreed[task].append(name)
        print(f"{name:28} {task:32} {difference or 'ok'}", flush=True)
    architectures = {name for names in agreed.values() for name in names}
    pairs = sum(len(names) for names in agreed.values())
    print(f"{pairs} of {count} agree: {len(architectures)} architectures, {len(agreed)} tasks")


if __name__ == "__main__":
    main()
