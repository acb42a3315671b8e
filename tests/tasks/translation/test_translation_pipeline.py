import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from graph_checks import nodes

import keras_transformers as kt
from keras_transformers.families.transformer.model import transformer
from keras_transformers.pipelines import Translation, Translator
from keras_transformers.saved_model.checks import check
from keras_transformers.tokenizers import SymbolTokenizer

TEXTS = ["a small dog", "two dogs are near", ""]


@pytest.fixture(scope="module")
def translate():
    return tiny.pipeline("translation")


@pytest.fixture(scope="module")
def exported():
    return tiny.exported("translation")


def test_one_text_or_many(translate):
    found = translate(TEXTS)
    assert [type(translation) for translation in found] == [Translation] * 3
    assert translate(TEXTS[0].encode()) == translate(TEXTS[:1])[0]
    assert translate([]) == []
    assert translate.translate_all(TEXTS) == [translation.text for translation in found]
    assert len({translation.text for translation in found}) == 3


@pytest.mark.slow
def test_the_export_translates_as_the_pipeline_does(translate, exported):
    assert list(check.failures(str(exported))) == []
    signatures = tf.saved_model.load(str(exported)).signatures
    assert set(signatures) == {"serving_default", "n_best", "attend", "tokenize"}
    expected = translate(TEXTS)
    found = signatures["serving_default"](text=tf.constant(TEXTS))
    texts = [text.decode() for text in found["translation"].numpy()]
    assert texts == [translation.text for translation in expected]
    scores = [translation.score for translation in expected]
    np.testing.assert_allclose(found["score"], scores, rtol=1e-4)
    best = signatures["n_best"](text=tf.constant(TEXTS[:2]))
    assert best["translations"].shape == (2, 3)
    np.testing.assert_array_equal(best["translations"][:, 0], found["translation"][:2])
    assert (np.diff(best["scores"]) <= 0).all()


@pytest.mark.slow
def test_the_export_obeys_the_options_of_the_search(translate, tmp_path):
    options = {"no_repeat_ngram_size": 2, "first_token_id": 5, "min_length": 4, "force_end": True}
    search = translate.with_options(rules="transformers", early_stopping=True, **options)
    folder = kt.export(search, tmp_path / "export", examples=TEXTS[:2])
    found = tf.saved_model.load(str(folder)).signatures["serving_default"](text=tf.constant(TEXTS))
    wanted = search(TEXTS)
    assert [text.decode() for text in found["translation"].numpy()] == [one.text for one in wanted]
    np.testing.assert_allclose(found["score"], [one.score for one in wanted], rtol=1e-4)
    assert wanted != translate(TEXTS)
    assert wanted == translate(
        TEXTS, rules="transformers", early_stopping=True, length_penalty=0.6, **options
    )


def test_an_empty_text_translates_to_an_empty_text(translate):
    assert translate(["", "  "]) == [Translation("", 0.0)] * 2


def test_the_rest_of_a_batch_changes_nothing(translate):
    for text, together in zip(TEXTS, translate(TEXTS), strict=True):
        alone = translate(text)
        assert alone.text == together.text
        assert alone.score == pytest.approx(together.score, rel=1e-4)


def test_a_translation_is_no_longer_than_source_and_extra_length(translate):
    tokenizer = translate.tokenizer
    greedy = Translator(translate.model, tokenizer, num_beams=1, extra_length=5)
    found = greedy._hypotheses(tf.constant(TEXTS), 1)
    num_tokens = tokenizer.tokenize(TEXTS).row_lengths().numpy()
    assert (found.lengths.numpy()[:2, 0] <= num_tokens[:2] + 5).all()
    assert found.lengths[2, 0] == 0


def test_a_text_beyond_the_positions_is_cut(translate):
    cut = translate._source(tf.constant(["Hund " * 100]))
    assert cut.shape == (1, 16)
    assert cut[0, -1] == translate.tokenizer.end_token_id
    assert translate("Hund " * 100).text


def test_attention_to_show(translate):
    attend = tf.function(translate.attend, autograph=False)
    found = attend(text=tf.constant(TEXTS[:2]), translation=tf.constant(["a dog", "two"]))
    source, target = found["source_tokens"].numpy(), found["target_tokens"].numpy()
    assert found["attention"].shape == (2, target.shape[1], source.shape[1])
    np.testing.assert_allclose(np.sum(found["attention"], -1), 1, atol=1e-5)
    length = int(translate.tokenizer.tokenize(TEXTS).row_lengths()[0])
    assert length + 1 < source.shape[1]
    assert source[0, length] == b"</s>"
    assert set(source[0, length + 1 :]) == {b""}
    assert np.max(found["attention"][0, :, length + 1 :]) == 0


@pytest.mark.slow
def test_the_description_tells_task_search_and_size(exported, translate):
    described = json.loads((exported / "assets.extra" / "keras_transformers.json").read_text())
    assert described["task"] == "translation"
    assert (described["num_beams"], described["length_penalty"]) == (3, 0.6)
    assert (described["max_sequence_length"], described["tolerance"]) == (16, 1e-5)
    assert described["vocabulary_size"] == 290
    assert described["model"]["num_parameters"] == translate.model.count_params()


def same_translations(loaded, pipeline, texts):
    """Checks that both give the same answers, eagerly: without two more graphs."""
    answers = loaded.answer(text=tf.constant(texts))
    for name, value in pipeline.answer(text=tf.constant(texts)).items():
        np.testing.assert_array_equal(answers[name], value)


def test_saved_and_loaded_it_translates_alike(translate, tmp_path):
    loaded = kt.load(translate.save(tmp_path / "saved"))
    assert type(loaded.model) is type(translate.model)
    assert loaded.config() == translate.config()
    assert loaded.target_tokenizer is loaded.tokenizer
    for one, other in zip(loaded.model.weights, translate.model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    same_translations(loaded, translate, TEXTS)


@pytest.mark.slow
def test_matrices_in_bfloat16(translate, exported, tmp_path):
    """The loops of the search read the rounded weights too; the self-check reloads them."""
    halved = kt.export(translate, tmp_path, examples=TEXTS[:2], weights_dtype="bfloat16")
    size, half = (
        (path / "variables/variables.data-00000-of-00001").stat().st_size
        for path in (exported, halved)
    )
    assert half < 0.65 * size


@functools.cache
def spelling():
    """Letters in, phonemes out: two tokenizers."""
    symbols = ["AY", "B", "HH", "a", "b", "h", "i"]
    return (
        SymbolTokenizer(symbols, lowercase=True),
        SymbolTokenizer(symbols, cut_at_spaces=True),
    )


@functools.cache
def recurrent(attention, cell="gru", **options):
    keras.utils.set_random_seed(2)
    return tiny.seq2seq(
        vocabulary_size=spelling()[0].vocabulary_size,
        cell=cell,
        num_encoder_layers=1,
        num_decoder_layers=1,
        embedding_dim=6,
        hidden_dim=8,
        attention=attention,
        **options,
    )


@pytest.fixture(scope="module")
def pronounce():
    """A pipeline whose model has no attention."""
    options = {"max_sequence_length": 6, "extra_length": 2, "num_beams": 2}
    return Translator(recurrent(None), *spelling(), **options)


@pytest.mark.slow
def test_two_tokenizers_and_a_model_without_attention(pronounce, tmp_path):
    """Without attention, there is no signature `attend`."""
    folder = kt.export(pronounce, tmp_path, examples=["hi", "Bah"], check=False)
    assert list(check.failures(str(folder))) == []
    signatures = tf.saved_model.load(str(folder)).signatures
    assert set(signatures) == {"serving_default", "n_best", "tokenize"}
    found = signatures["serving_default"](tf.constant(["HI", "", "b"]))["translation"].numpy()
    expected = pronounce.translate_all(["hi", "", "b"])
    assert [text.decode() for text in found] == expected
    assert expected[1] == ""
    assert set(expected[0].split()) <= {*spelling()[1].vocabulary}
    ops = {node.op for node in nodes(folder)}
    assert not {op for op in ops if ">" in op or op.startswith(("Fast", "Sentencepiece", "Py"))}


@pytest.mark.slow
@pytest.mark.parametrize(
    "decoder",
    [
        {"context": "initial_state", "bridge": "copy", "feed_tokens": False},
        {"context": "input", "bridge": "zeros", "feed_tokens": False},
        {"context": "input", "context_from": "mean", "context_dim": 3},
    ],
    ids=["state", "context", "tokens"],
)
def test_whatever_the_decoder_reads_it_is_exported(decoder, tmp_path):
    model = recurrent(None, cell="rnn", encoder_hidden_dim=4, **decoder)
    pipeline = Translator(model, *spelling(), max_sequence_length=6, extra_length=2, num_beams=2)
    folder = kt.export(pipeline, tmp_path, examples=["hi", "Bah"], check=False)
    assert list(check.failures(str(folder))) == []
    loaded = tf.saved_model.load(str(folder)).signatures["serving_default"]
    found = loaded(tf.constant(["HI", "", "b"]))["translation"].numpy()
    assert [text.decode() for text in found] == pipeline.translate_all(["hi", "", "b"])


@pytest.mark.slow
def test_two_tokenizers_are_saved_and_loaded(pronounce, tmp_path):
    loaded = kt.load(pronounce.save(tmp_path / "saved"))
    assert (tmp_path / "saved" / "target_tokenizer" / "symbols.txt").is_file()
    assert loaded.config() == pronounce.config()
    assert loaded.tokenizer.config() == {"cut_at_spaces": False, "lowercase": True}
    assert loaded.target_tokenizer.config() == {"cut_at_spaces": True, "lowercase": False}
    assert not loaded.has_attention
    same_translations(loaded, pronounce, ["hi", "Bah", "b", ""])


@pytest.mark.parametrize("attention", [None, "general"])
def test_each_side_has_its_own_vocabulary(attention):
    letters, phonemes = spelling()
    model = recurrent(attention)
    other = SymbolTokenizer(list("abcdefghijklmnopqrstuvwxyz"))
    with pytest.raises(ValueError, match="source's.*30 tokens"):
        Translator(model, other, phonemes, max_sequence_length=12)
    with pytest.raises(ValueError, match="target's.*30 tokens"):
        Translator(model, letters, other, max_sequence_length=12)


def test_attention_is_shown_in_the_tokens_of_both_sides():
    pipeline = Translator(recurrent("general"), *spelling(), max_sequence_length=12)
    assert pipeline.has_attention
    found = pipeline.attend(tf.constant(["hi"]), tf.constant(["HH AY"]))
    assert found["source_tokens"].numpy().tolist() == [[b"h", b"i", b"</s>"]]
    assert found["target_tokens"].numpy().tolist() == [[b"HH", b"AY", b"</s>"]]
    np.testing.assert_allclose(np.sum(found["attention"], -1), 1, atol=1e-5)


def tiny_transformer(**options):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 1}
    return transformer(**sizes, hidden_dim=4, intermediate_dim=4, **options)


def test_a_vocabulary_of_another_size_is_refused(translate):
    other = tiny_transformer(vocabulary_size=11)
    wrong = "tokenizer has 290 tokens but model 'transformer' embeds 11: use the vocabulary"
    with pytest.raises(ValueError, match="the source's " + wrong):
        Translator(other, translate.tokenizer)


def test_other_padding_is_refused(translate):
    padded = tiny_transformer(vocabulary_size=290, pad_token_id=1)
    with pytest.raises(ValueError, match="pads with token 1, the tokenizer with 0: build"):
        Translator(padded, translate.tokenizer)


@pytest.mark.parametrize("length", [1, 17])
def test_a_length_that_does_not_fit_is_refused(translate, length):
    with pytest.raises(ValueError, match=rf"max_sequence_length={length} .* and at most 16, its"):
        Translator(translate.model, translate.tokenizer, max_sequence_length=length)


def test_without_positions_the_length_must_be_reported():
    with pytest.raises(ValueError, match="'seq2seq' has no positions .*pass max_sequence_length"):
        Translator(recurrent(None), *spelling())
    with pytest.raises(ValueError, match="max_sequence_length=1 .*expected at least 2"):
        Translator(recurrent(None), *spelling(), max_sequence_length=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "num_beams=0: must be at least 1"),
        ({"length_penalty": -0.5}, "length_penalty=-0.5: must be 0"),
        ({"extra_length": -1}, "extra_length=-1: .*0 or more"),
        ({"min_length": -1}, "min_length=-1: .*0 or more"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size=-1: .*0 or more"),
        ({"first_token_id": 10**6}, "first_token_id=1000000: expected one of the .* tokens of"),
        ({"early_stopping": True}, "early_stopping=True, but rules='gnmt'"),
    ],
)
def test_options_out_of_range_are_refused(translate, options, message):
    with pytest.raises(ValueError, match=message):
        Translator(translate.model, translate.tokenizer, **options)


def test_what_is_no_encoder_decoder_is_refused(translate):
    classifier = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="classifier")
    with pytest.raises(ValueError, match="'classifier'.*encoder-decoder"):
        Translator(classifier, translate.tokenizer)


@pytest.mark.parametrize("examples", [[3], [("a", "b")]])
def test_examples_are_strings(translate, examples):
    with pytest.raises(ValueError, match="examples must be strings"):
        translate.example_batches(examples)
