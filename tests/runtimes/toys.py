"""The exports that `matrix.py` tries: kind -> name -> a function that exports it to a folder."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import albert_toy
import roberta_toy
import tiny
import xlm_roberta_toy

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.saved_model.manifest import read

SAVED_MODELS = Path(__file__).parents[2] / "saved_models"
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 64, "max_sequence_length": 24}
ENCODERS = ("albert", "bert", "deberta", "distilbert", "electra", "mpnet", "roberta", "xlm_roberta")
Export = Callable[[Path], Path]


def all_kinds() -> dict[str, dict[str, Export]]:
    return {
        "every task, float32": {task: of_task(task) for task in tiny.TASKS},
        "every task, bfloat16 weights": {
            task: of_task(task, weights_dtype="bfloat16") for task in tiny.TASKS
        },
        "matrices in panels": {
            make.__name__: lambda base, make=make: kt.export(make(), base, check=False)
            for make in (classifier, mask_filler, translator, generator)
        },
        "every family of encoders": {
            family: lambda base, family=family: kt.export(classifier(family), base, check=False)
            for family in ENCODERS
        },
        "int8": {
            make.__name__: lambda base, make=make: kt.export(
                make(), base, weights_dtype="int8", check=False
            )
            for make in (classifier, embedder, mask_filler, translator, generator)
        },
        "a corpus": {"searcher": lambda base: kt.export(tiny.searcher(), base, check=False)},
        "those in saved_models/": {
            name: lambda base, name=name: SAVED_MODELS / name
            for name in read(SAVED_MODELS / "manifest.json")
        },
    }


def of_task(task: str, **options) -> Export:
    return lambda base: kt.export(tiny.pipeline(task), base, check=False, **options)


def encoder(family: str, tokenizer):
    family = family.removeprefix("xlm_")  # RoBERTa's layers on another vocabulary
    build = getattr(getattr(kt.families, family), family)
    return tiny.lively(build(vocabulary_size=tokenizer.vocabulary_size, **SIZES))


def classifier(family: str = "bert"):
    with tempfile.TemporaryDirectory() as folder:
        if family == "roberta":
            tokenizer = roberta_toy.tokenizer(Path(folder, "roberta"))
        elif family == "albert":
            tokenizer = albert_toy.tokenizer(Path(folder))
        elif family == "xlm_roberta":
            tokenizer = xlm_roberta_toy.tokenizer(Path(folder))
        else:
            tokenizer = tiny.wordpiece()
        model = heads.classifier(encoder(family, tokenizer), 2)
        return kt.pipelines.TextClassifier(model, tokenizer, ["negative", "positive"])


def embedder():
    return kt.pipelines.Embedder(encoder("bert", tiny.wordpiece()), tiny.wordpiece())


def mask_filler():
    model = heads.pretrainer(encoder("bert", tiny.wordpiece()))
    return kt.pipelines.MaskFiller(model, tiny.wordpiece(), top_k=3)


def translator():
    tokenizer = tiny.sentence_pieces()
    model = kt.families.transformer.transformer(
        vocabulary_size=tokenizer.vocabulary_size,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_heads=2,
        hidden_dim=64,
        intermediate_dim=64,
        max_sequence_length=16,
    )
    return kt.pipelines.Translator(model, tokenizer, num_beams=2, extra_length=5)


def generator():
    tokenizer = tiny.byte_pairs()
    model = kt.families.gpt.gpt(vocabulary_size=tokenizer.vocabulary_size, **SIZES)
    return kt.pipelines.TextGenerator(model, tokenizer, max_length=5, top_k=0)
