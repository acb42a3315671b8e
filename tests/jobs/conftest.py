"""What the tests of jobs share: texts, their shards, and an export that answers in microseconds."""

from pathlib import Path

import engine_toys
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.data.pretraining import make_pretraining_data
from keras_transformers.tokenizers import WordPieceTokenizer


@pytest.fixture(scope="session")
def lengths(tmp_path_factory) -> Path:
    """The BASE of an export that counts the bytes of texts: read only."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False)
    def count(text):
        is_fine = tf.reduce_all(text != "refuse me")
        with tf.control_dependencies([tf.debugging.Assert(is_fine, ["a text that it refuses"])]):
            return {"length": tf.strings.length(text), "text": tf.identity(text)}

    base = tmp_path_factory.mktemp("lengths")
    engine_toys.export(base / "3", serving_default=count)
    return base


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    """Three files of documents, a line of each unreadable."""
    folder, random = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    for number in range(3):
        sentences = (" ".join(random.choice(list("abcdefghijx"), 6)) for _ in range(60))
        lines = [line + "\n" * (random.random() < 0.2) for line in sentences]
        folder.joinpath(f"{number}.txt").write_bytes("\n".join(lines).encode() + b"\n\xff\na\n")
    return folder


@pytest.fixture(scope="session")
def shards(texts, tmp_path_factory) -> Path:
    """What is made here from paths."""
    folder = tmp_path_factory.mktemp("made") / "data"
    tokenizer = WordPieceTokenizer(engine_toys.VOCABULARY)
    make_pretraining_data(texts, folder, tokenizer, engine_toys.OPTIONS, skip_unreadable=True)
    return folder
