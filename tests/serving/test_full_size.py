"""BERT's real sizes through the whole way: built, exported, checked in a fresh process, served."""

import keras
import numpy as np
import pytest

import keras_transformers as kt
from keras_transformers.models.registry import entry
from keras_transformers.serving import Client, Limits, ModelSettings, Server

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "film"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_base", "bert_large"])
def test_a_full_size_export_is_served(name, tmp_path):
    """No limit of size (2 GiB of a protocol buffer, one file of variables) is in the way."""
    keras.utils.set_random_seed(0)
    words = [*VOCABULARY, *(f"word{number}" for number in range(30_522 - len(VOCABULARY)))]
    encoder = kt.create_model(name, vocabulary_size=len(words))
    assert encoder.count_params() == entry(name).num_parameters
    tokenizer = kt.tokenizers.WordPieceTokenizer(words)
    classify = kt.pipelines.TextClassifier(
        kt.heads.classifier(encoder, 2), tokenizer, ["no", "yes"], max_sequence_length=512
    )
    texts = ["a film", "word3 " * 600]  # the second fills all 512 positions
    expected = [answer.probabilities for answer in classify(texts)]
    folder = kt.export(classify, tmp_path / "model")  # which repeats its examples in a new process
    del classify, encoder
    settings = [ModelSettings("model", folder.parent)]
    with Server(settings, rest_port=0, grpc_port=0, limits=Limits(timeout_s=600.0)) as running:
        assert running.wait_until_loaded(600)
        for url in (
            f"http://127.0.0.1:{running.rest_port}",
            f"grpc://127.0.0.1:{running.grpc_port}",
        ):
            with Client(url, timeout_s=600) as client:
                answers = client.predict({"text": texts}, model="model")
                np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)
