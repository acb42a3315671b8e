import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from graph_checks import nodes
from keras_transformers.export import translator

from keras_transformers.models.seq2seq import seq2seq
from keras_transformers.models.transformer import transformer
from keras_transformers.pipelines.translation import Translator
from keras_transformers.tokenizers import SentencePieceTokenizer
from keras_transformers.tokenizers.symbols import SymbolTokenizer

TEXTS = ["ein kleiner Hund", "zwei Hunde laufen schnell", ""]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe")
    lines = ["ein kleiner Hund läuft", "zwei Hunde laufen schnell", "a small dog runs", "two dogs"]
    (folder / "text").write_text("\n".join(lines * 3), "utf-8")
    return SentencePieceTokenizer.train([folder / "text"], folder / "m", vocabulary_size=300)


@pytest.fixture(scope="module")
def model():
    model = transformer(
        vocabulary_size=300,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=16,
        max_sequence_length=24,
        norm_position="pre",
    )
    random = np.random.default_rng(3)
    for weight in model.trainable_variables:
        if len(weight.shape) == 2:  # lively, so that no two continuations are nearly equal
            weight.assign(random.normal(0, 0.5, weight.shape))
    return model


@pytest.fixture(scope="module")
def exported(model, bpe, tmp_path_factory):
    """Checked by reloading in a fresh process and through the V1 session loader."""
    return translator(
        model,
        bpe,
        tmp_path_factory.mktemp("base"),
        max_sequence_length=24,
        num_beams=3,
        extra_length=5,
        examples=TEXTS[:2],
    )


def graph(model, bpe, **options):
    return Translator(model, bpe, max_sequence_length=24, extra_length=5, **options)


def test_the_export_translates_as_the_model_does(model, bpe, exported):
    loaded = tf.saved_model.load(str(exported))
    expected = graph(model, bpe, num_beams=3).translate(tf.constant(TEXTS))
    found = loaded.signatures["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_array_equal(found["translation"], expected["translation"])
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-4)
    best = loaded.signatures["n_best"](text=tf.constant(TEXTS[:2]))
    assert best["translations"].shape == (2, 3)
    np.testing.assert_array_equal(best["translations"][:, 0], found["translation"][:2])
    assert (np.diff(best["scores"]) <= 0).all()


def test_an_empty_text_translates_to_an_empty_text(model, bpe):
    found = graph(model, bpe, num_beams=2).translate(tf.constant(["", "  "]))
    assert found["translation"].numpy().tolist() == [b"", b""]
    assert found["score"].numpy().tolist() == [0.0, 0.0]


def test_the_company_in_a_batch_changes_nothing(model, bpe):
    translate = graph(model, bpe, num_beams=3).translate
    together = translate(tf.constant(TEXTS))
    for row, text in enumerate(TEXTS):
        alone = translate(tf.constant([text]))
        assert alone["translation"][0] == together["translation"][row]
        np.testing.assert_allclose(alone["score"][0], together["score"][row], rtol=1e-4)


def test_a_translation_is_no_longer_than_source_and_extra_length(model, bpe):
    found = graph(model, bpe, num_beams=1)._search(tf.constant(TEXTS), 1)
    num_tokens = bpe.tokenize(TEXTS).row_lengths().numpy()
    assert (found.lengths.numpy()[:2, 0] <= num_tokens[:2] + 5).all()
    assert found.lengths[2, 0] == 0


def test_a_text_beyond_the_positions_is_cut(model, bpe):
    found = graph(model, bpe, num_beams=2).translate(tf.constant(["Hund " * 100]))
    cut = graph(model, bpe, num_beams=2)._source(tf.constant(["Hund " * 100]))
    assert cut.shape == (1, 24)
    assert cut[0, -1] == bpe.end_token_id
    assert found["translation"].shape == (1,)


def test_attention_to_show(exported, bpe):
    attend = tf.saved_model.load(str(exported)).signatures["attend"]
    found = attend(text=tf.constant(TEXTS[:2]), translation=tf.constant(["a dog", "two"]))
    source, target = found["source_tokens"].numpy(), found["target_tokens"].numpy()
    assert found["attention"].shape == (2, target.shape[1], source.shape[1])
    np.testing.assert_allclose(np.sum(found["attention"], -1), 1, atol=1e-5)
    length = int(bpe.tokenize(TEXTS).row_lengths()[0])
    assert source[0, length] == b"</s>"
    assert set(source[0, length + 1 :]) <= {b""}
    assert np.max(found["attention"][0, :, length + 1 :], initial=0) == 0


def test_the_description_tells_task_search_and_size(exported, model):
    described = json.loads((exported / "assets.extra" / "keras_transformers.json").read_text())
    assert described["task"] == "translation"
    assert described["num_beams"] == 3
    assert described["model"]["num_parameters"] == model.count_params()


def test_a_vocabulary_of_another_size_is_refused(bpe, tmp_path):
    other = transformer(
        vocabulary_size=11,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_heads=1,
        hidden_dim=4,
        intermediate_dim=4,
    )
    wrong = "tokenizer has 300 tokens and model 'transformer' 11: use the vocabulary"
    with pytest.raises(ValueError, match="the source's " + wrong):
        translator(other, bpe, tmp_path, max_sequence_length=24)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_matrices_in_bfloat16(model, bpe, exported, tmp_path):
    """The search's loops read the rounded weights too; checked by reloading."""
    halved = translator(
        model,
        bpe,
        tmp_path,
        max_sequence_length=24,
        num_beams=3,
        extra_length=5,
        examples=TEXTS[:2],
        weights_dtype="bfloat16",
    )
    size, half = (
        (path / "variables/variables.data-00000-of-00001").stat().st_size
        for path in (exported, halved)
    )
    assert half < 0.65 * size


@pytest.fixture(scope="module")
def spelling():
    """Letters in, phonemes out: each has a tokenizer of its own."""
    symbols = ["AY", "B", "HH", "a", "b", "h", "i"]
    return (
        SymbolTokenizer(symbols, lowercase=True),
        SymbolTokenizer(symbols, cut_at_spaces=True),
    )


def recurrent(spelling, attention):
    keras.utils.set_random_seed(2)
    return seq2seq(
        vocabulary_size=spelling[0].vocabulary_size,
        cell="gru",
        num_encoder_layers=1,
        num_decoder_layers=1,
        embedding_dim=6,
        hidden_dim=8,
        attention=attention,
    )


def test_two_tokenizers_and_a_model_without_attention(spelling, tmp_path):
    """Checked by reloading, as the other; what nothing attended to is no signature."""
    letters, phonemes = spelling
    model = recurrent(spelling, None)
    options = {"max_sequence_length": 12, "extra_length": 3, "target_tokenizer": phonemes}
    folder = translator(model, letters, tmp_path, num_beams=2, examples=["hi", "Bah"], **options)
    signatures = tf.saved_model.load(str(folder)).signatures
    assert set(signatures) == {"serving_default", "n_best"}
    found = signatures["serving_default"](tf.constant(["HI", "", "b"]))["translation"].numpy()
    expected = Translator(model, letters, num_beams=2, **options).translate_all(["hi", "", "b"])
    assert [text.decode() for text in found] == expected
    assert expected[1] == ""
    assert set(expected[0].split()) <= {*phonemes.vocabulary}
    ops = {node.op for node in nodes(folder)}
    assert not {op for op in ops if ">" in op or op.startswith(("Fast", "Sentencepiece", "Py"))}


@pytest.mark.parametrize("attention", [None, "general"])
def test_each_side_has_its_own_vocabulary(spelling, attention):
    letters, phonemes = spelling
    model = recurrent(spelling, attention)
    other = SymbolTokenizer(["a"])
    with pytest.raises(ValueError, match="the source's tokenizer has 5 tokens"):
        Translator(model, other, max_sequence_length=12, target_tokenizer=phonemes)
    with pytest.raises(ValueError, match="the target's tokenizer has 5 tokens"):
        Translator(model, letters, max_sequence_length=12, target_tokenizer=other)


def test_attention_is_shown_in_the_tokens_of_both_sides(spelling):
    letters, phonemes = spelling
    graph = Translator(
        recurrent(spelling, "general"), letters, max_sequence_length=12, target_tokenizer=phonemes
    )
    assert graph.has_attention
    found = graph.attend(tf.constant(["hi"]), tf.constant(["HH AY"]))
    assert found["source_tokens"].numpy().tolist() == [[b"h", b"i", b"</s>"]]
    assert found["target_tokens"].numpy().tolist() == [[b"HH", b"AY", b"</s>"]]
    np.testing.assert_allclose(np.sum(found["attention"], -1), 1, atol=1e-5)


def test_what_is_no_encoder_decoder_is_refused(bpe):
    classifier = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="classifier")
    with pytest.raises(ValueError, match="model 'classifier' is no encoder-decoder: take a Trans"):
        Translator(classifier, bpe, max_sequence_length=24)
