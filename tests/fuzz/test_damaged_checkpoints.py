"""Every file of other people's checkpoints is taken when damaged, or refused by name.

See `test_damaged_files`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
from reader import Reader, as_json, check_reader, text, written
from safetensors.numpy import save_file

from keras_transformers.convert.formats.checkpoints import open_checkpoint
from keras_transformers.convert.formats.google_bert import read_google_bert

VOCABULARY = text(*tiny.VOCABULARY, "")
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8}
BERT = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "id2label": {"0": "a", "1": "b"},
    "problem_type": "single_label_classification",
    "vocab_size": 14,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "hidden_size": 8,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}
TOKENIZER = {
    "do_lower_case": True,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    "model_max_length": 512,
    "mask_token": {"content": "[MASK]"},
    "unk_token": "[UNK]",
}
ALL_IN_ONE = {
    "normalizer": {"lowercase": True},
    "added_tokens": [{"content": "[PAD]", "id": 0}],
    "model": {
        "type": "WordPiece",
        "vocab": {token: number for number, token in enumerate(tiny.VOCABULARY)},
    },
}
MODULES = [
    {"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
]
POOLING = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


def keras_object(name: str, **config: Any) -> dict[str, Any]:
    return {"registered_name": f"keras_hub>{name}", "config": config}


PRESET = keras_object(
    "BertBackbone", vocabulary_size=14, intermediate_dim=8, dropout=0.1, max_sequence_length=16,
    num_segments=2, **SIZES,
)  # fmt: skip
IMAGES = keras_object(
    "ViTBackbone", image_shape=[8, 8, 3], patch_size=[4, 4], mlp_dim=8, dropout_rate=0.0,
    layer_norm_epsilon=1e-6, use_class_token=True, **SIZES,
)  # fmt: skip


def opened(**beside: Any) -> Callable[[Path], None]:
    """Opens the folder that has the damaged file, with others: name, "/" written "__" -> JSON."""

    def read(path: Path) -> None:
        folder = path.parent
        for name, value in beside.items():
            file = folder / name.replace("__", "/")
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(value))
        if not (folder / "model.safetensors").exists():
            save_file({"a": np.ones(2, "float32")}, folder / "model.safetensors")
        checkpoint = open_checkpoint(folder)
        if "tokenizer" in path.name:
            (folder / "vocab.txt").write_bytes(VOCABULARY())
            checkpoint.tokenizers()

    return read


def read_all_in_one(path: Path) -> None:
    (path.parent / "config.json").write_text(json.dumps(BERT))
    save_file({"a": np.ones(2, "float32")}, path.parent / "model.safetensors")
    open_checkpoint(path.parent).tokenizers()


def read_pooling(path: Path) -> None:
    (path.parents[1] / "modules.json").write_text(json.dumps(MODULES))
    (path.parents[1] / "config.json").write_text(json.dumps(BERT))
    save_file({"a": np.ones(2, "float32")}, path.parents[1] / "model.safetensors")
    open_checkpoint(path.parents[1])


def write_npz(path: Path) -> None:
    layer = "Transformer/encoderblock_0"
    arrays = {
        "cls": np.ones((1, 1, 4)),
        "embedding/kernel": np.ones((2, 2, 3, 4)),
        "Transformer/posembed_input/pos_embedding": np.ones((1, 5, 4)),
        f"{layer}/MultiHeadDotProductAttention_1/query/kernel": np.ones((4, 2, 2)),
        f"{layer}/MlpBlock_3/Dense_0/kernel": np.ones((4, 8)),
    }
    np.savez(path, **arrays)


def write_checkpoint(path: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        names = ("bert/embeddings/word_embeddings", "bert/pooler/dense/kernel", "global_step")
        variables = [tf.compat.v1.get_variable(name, initializer=np.ones((4, 4))) for name in names]
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(variables)
        saver.save(session, str(path.parent / "bert_model.ckpt"), write_meta_graph=False)


def read_checkpoint(path: Path) -> None:
    missing = [name for name in (INDEX, DATA) if not (path.parent / name).exists()]
    for name in missing:
        (path.parent / name).write_bytes(written(write_checkpoint, name)())
    read_google_bert(path.parent / "bert_model.ckpt")


INDEX, DATA = "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"
CONFIG = {"config.json": BERT}
READERS = {
    "hugging face config": Reader("config.json", as_json(BERT), opened(), is_json=True),
    "tokenizer config": Reader(
        "tokenizer_config.json", as_json(TOKENIZER), opened(**CONFIG), is_json=True, examples=20
    ),
    "tokenizer.json": Reader(
        "tokenizer.json",
        as_json(ALL_IN_ONE),
        read_all_in_one,
        is_json=True,
        others=("vocab.txt",),
        examples=20,
    ),
    "modules": Reader(
        "modules.json",
        as_json(MODULES),
        opened(**CONFIG, **{"1_Pooling__config.json": POOLING}),
        is_json=True,
        others=("config.json",),
    ),
    "pooling": Reader("1_Pooling/config.json", as_json(POOLING), read_pooling, is_json=True),
    "sentence config": Reader(
        "sentence_bert_config.json",
        as_json({"max_seq_length": 256, "do_lower_case": False}),
        opened(**CONFIG, **{"modules.json": MODULES, "1_Pooling__config.json": POOLING}),
        is_json=True,
    ),
    "options": Reader(
        "keras_transformers.json",
        as_json({"task": "classification", "options": {"pair": True, "max_sequence_length": 9}}),
        opened(**CONFIG),
        is_json=True,
    ),
    "preset": Reader("config.json", as_json(PRESET), opened(), is_json=True),
    "preset of images": Reader("config.json", as_json(IMAGES), opened(), is_json=True),
    "preset's task": Reader(
        "task.json",
        as_json(keras_object("BertTextClassifier", num_classes=3, activation="linear")),
        opened(**{"config.json": PRESET}),
        is_json=True,
    ),
    "preset's preprocessor": Reader(
        "preprocessor.json",
        as_json(keras_object("BertTextClassifierPreprocessor", sequence_length=9)),
        opened(**{"config.json": PRESET}),
        is_json=True,
    ),
    "preset's pixels": Reader(
        "image_converter.json",
        as_json(
            keras_object("ImageConverter", scale=0.1, offset=[0, 1, 2], interpolation="bilinear")
        ),
        opened(**{"config.json": IMAGES}),
        is_json=True,
    ),
    "google config": Reader(
        "bert_config.json",
        as_json({key: value for key, value in BERT.items() if key != "model_type"}),
        lambda path: (read_checkpoint(path), open_checkpoint(path.parent)),
        is_json=True,
    ),
    "google index": Reader(
        INDEX, written(write_checkpoint, INDEX), read_checkpoint, others=("bert_model.ckpt",)
    ),
    "google data": Reader(
        DATA, written(write_checkpoint, DATA), read_checkpoint, others=("bert_model.ckpt",)
    ),
    "google vit": Reader("vit.npz", written(write_npz, "vit.npz"), open_checkpoint),
}


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_by_name(name, tmp_path, seconds):
    check_reader(name, READERS[name], tmp_path, seconds)
