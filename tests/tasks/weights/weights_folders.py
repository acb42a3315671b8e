"""Folders in Hugging Face's layout with the weights of tiny pipelines."""

import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import albert_toy
import camembert_toy
import deberta_toy
import keras
import roberta_toy
import tiny
import xlm_roberta_toy

import keras_transformers as kt
from keras_transformers.families.albert.model import albert
from keras_transformers.families.bert.files import FAMILY as BERT
from keras_transformers.families.bert.model import bert
from keras_transformers.families.deberta.model import deberta
from keras_transformers.families.deberta.model import with_pooler as deberta_with_pooler
from keras_transformers.families.distilbert.files import FAMILY as DISTILBERT
from keras_transformers.families.distilbert.model import distilbert, with_pooler
from keras_transformers.families.electra.model import electra
from keras_transformers.families.electra.model import with_pooler as electra_with_pooler
from keras_transformers.families.mpnet.model import mpnet
from keras_transformers.families.roberta.files import FAMILY as ROBERTA
from keras_transformers.families.roberta.model import roberta
from keras_transformers.models.anatomy import anatomy
from keras_transformers.tokenizers import MPNetTokenizer

SHAPE = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "max_sequence_length": 24}
LABELS = ["O", "B-X", "I-X"]
# Family -> the start of its classes' names, its builder, and what saves weights and config.
FAMILIES = {
    "bert": ("Bert", bert, BERT.save, BERT.save_config),
    "distilbert": ("DistilBert", distilbert, DISTILBERT.save, DISTILBERT.save_config),
    "roberta": ("Roberta", roberta, ROBERTA.save, ROBERTA.save_config),
}
MPNET_VOCABULARY = ["<s>", "<pad>", "</s>", "[UNK]", *tiny.VOCABULARY[5:], "<mask>"]
# Family -> its builder, and what makes a tokenizer in a folder.
ENCODERS: dict[str, tuple[Callable[..., keras.Model], Callable[[Path], Any]]] = {
    "albert": (
        lambda **sizes: albert(**sizes | {"num_layers": 2, "embedding_dim": 4}),
        lambda folder: albert_toy.tokenizer(made(folder)),
    ),
    "bert": (bert, lambda folder: tiny.wordpiece()),
    "camembert": (roberta, lambda folder: camembert_toy.tokenizer(made(folder))),
    "deberta-v2": (
        lambda **sizes: deberta_with_pooler(deberta(**sizes, num_buckets=8, max_distance=12)),
        lambda folder: deberta_toy.tokenizer(made(folder)),
    ),
    "distilbert": (
        lambda **sizes: with_pooler(distilbert(**sizes)),
        lambda folder: tiny.wordpiece(),
    ),
    "electra": (
        lambda **sizes: electra_with_pooler(electra(**sizes, embedding_dim=4)),
        lambda folder: tiny.wordpiece(),
    ),
    "mpnet": (mpnet, lambda folder: MPNetTokenizer(MPNET_VOCABULARY)),
    "roberta": (roberta, roberta_toy.fairseq_tokenizer),
    "xlm-roberta": (roberta, lambda folder: xlm_roberta_toy.tokenizer(made(folder))),
}
# Task -> the end of Hugging Face's class.
CLASSES = {
    "classification": "ForSequenceClassification",
    "regression": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
    "fill_mask": "ForMaskedLM",
    "multiple_choice": "ForMultipleChoice",
    "embedding": "Model",
}
QUESTION_OPTIONS = {"max_sequence_length": 24, "doc_stride": 3, "max_question_length": 8}


def pipeline(family: str, task: str, folder: Path) -> Any:
    """A tiny pipeline of a family, weights far from zero; `folder` gets a learned vocabulary."""
    build, make_tokenizer = ENCODERS[family]
    tokenizer = make_tokenizer(folder)
    encoder = build(vocabulary_size=tokenizer.vocabulary_size, **SHAPE)
    model = tiny.lively(_headed(encoder, task))
    pipelines = kt.pipelines
    if task == "classification":
        return pipelines.TextClassifier(model, tokenizer, LABELS)
    if task == "tagging":
        return pipelines.Tagger(model, tokenizer, LABELS)
    if task == "question_answering":
        return pipelines.QuestionAnswerer(model, tokenizer, **QUESTION_OPTIONS)
    kinds = {
        "regression": pipelines.TextRegressor,
        "fill_mask": pipelines.MaskFiller,
        "multiple_choice": pipelines.MultipleChoice,
        "embedding": pipelines.Embedder,
    }
    return kinds[task](model, tokenizer)


def made(folder: Path) -> Path:
    """The folder, which now exists."""
    folder.mkdir(exist_ok=True)
    return folder


def _headed(encoder: keras.Model, task: str) -> keras.Model:
    if task == "fill_mask":
        block = anatomy(encoder).blocks[0]
        return kt.heads.masked_lm(
            encoder, norm_epsilon=block.norm_epsilon, activation=block.feed_forward.activation
        )
    heads = {
        "classification": lambda: kt.heads.classifier(encoder, 3),
        "regression": lambda: kt.heads.regressor(encoder),
        "multiple_choice": lambda: kt.heads.multiple_choice(encoder),
        "tagging": lambda: kt.heads.tagger(encoder, 3),
        "question_answering": lambda: kt.heads.span_extractor(encoder),
        "embedding": lambda: encoder,
    }
    return heads[task]()


def write(family: str, task: str, folder: Path, **config: Any) -> Any:
    """Writes the folder that `from_pretrained` of the task's class takes.

    Returns:
        The pipeline, which is the same for each folder of this family and task: read only.
    """
    made, written = _written(family, task)
    shutil.copytree(written, folder, dirs_exist_ok=True)
    change_json(folder / "config.json", **config)
    return made


_folders = tempfile.TemporaryDirectory(prefix="weights_folders-")


@functools.cache
def _written(family: str, task: str) -> tuple[Any, Path]:
    folder = Path(_folders.name, f"{family}-{task}")
    start, _, save, save_config = FAMILIES[family]
    made = pipeline(family, task, folder)
    folder.mkdir(exist_ok=True)
    if family != "roberta":
        made.tokenizer.save(folder)
    save(made.model, folder / "model.safetensors")
    labels = LABELS if task in ("classification", "tagging") else None
    save_config(made.model, folder / "config.json", labels=labels)
    change_json(folder / "config.json", architectures=[f"{start}{CLASSES[task]}"])
    return made, folder


def change_json(file: Path, **fields: Any) -> None:
    """Sets fields of a JSON object; None removes one."""
    found = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({k: v for k, v in (found | fields).items() if v is not None}))
