"""Pipelines of mBART and mBART-50: languages in calls, files, exports and training."""

import mbart_toy as toy
import numpy as np
import pytest
import tensorflow as tf
from logged import warnings_in

import keras_transformers as kt

TEXTS = ["a small dog", "two dogs run", ""]


@pytest.fixture(scope="module")
def translate(tmp_path_factory):
    """mBART's; mBART-50's differs from NLLB's only in names."""
    return toy.translator("mbart", tmp_path_factory.mktemp("mbart"))


@pytest.fixture(scope="module", params=toy.CLASSES)
def either(request, tmp_path_factory):
    return toy.translator(request.param, tmp_path_factory.mktemp(request.param))


def test_the_target_language_starts_translations(translate):
    languages = translate.tokenizer.languages
    source, target = languages[toy.SOURCE], languages[toy.TARGET]
    assert translate.first_token_id is None
    ids = np.asarray(translate._source(TEXTS[:1]))[0]
    assert ids[-2:].tolist() == [2, source]
    answers = translate(TEXTS)
    assert answers[2].text == ""
    assert answers[0].text != answers[1].text
    other = translate.with_options(source_language=toy.TARGET, target_language=toy.SOURCE)
    assert np.asarray(other._source(TEXTS[:1]))[0, -1] == target
    assert other.target_tokenizer.start_token_id == source
    turned = other(TEXTS)
    assert turned != answers
    found = translate.between(
        tf.constant(TEXTS[:2]),
        tf.constant([toy.TARGET, toy.SOURCE]),
        tf.constant([toy.SOURCE, toy.TARGET]),
    )["translation"]
    assert [text.decode() for text in found.numpy()] == [turned[0].text, answers[1].text]


def test_it_trains_with_the_languages(translate):
    pairs = [("a small dog", "zwei Hunde"), ("two dogs", "Hunde laufen")] * 4
    batches = kt.data.translation.PairBatches(pairs, translate, batch_tokens=64, seed=0)
    inputs, targets, weights = next(iter(batches.dataset()))
    target = translate.tokenizer.languages[toy.TARGET]
    rows = weights["logits"].numpy().sum(axis=1).astype(int)
    assert (inputs["target_token_ids"][:, 0] == target).numpy().all()
    for row, labels in zip(rows, targets["logits"].numpy(), strict=True):
        assert labels[row - 2 : row].tolist() == [2, target]


@pytest.mark.slow
def test_saved_in_either_format_it_comes_back(either, tmp_path, caplog):
    forms = ("huggingface", "keras_transformers")
    loaded = [kt.load(kt.save(either, tmp_path / form, format=form)) for form in forms]
    assert not warnings_in(caplog)
    for again in loaded:
        assert again.config() == either.config()
        assert again.tokenizer.config() == either.tokenizer.config()
        assert again(TEXTS) == either(TEXTS)
    back = kt.load(tmp_path / "huggingface", source_language=toy.TARGET, target_language=toy.SOURCE)
    assert back(TEXTS) == either(TEXTS, source_language=toy.TARGET, target_language=toy.SOURCE)


@pytest.mark.slow
def test_the_export_takes_languages_in_requests(either, tmp_path):
    folder = kt.export(either, tmp_path / "export", examples=TEXTS[:2])
    signatures = tf.saved_model.load(str(folder)).signatures
    assert set(signatures) == {"serving_default", "n_best", "between", "attend", "tokenize"}
    found = signatures["serving_default"](text=tf.constant(TEXTS))
    wanted = either(TEXTS)
    assert [text.decode() for text in found["translation"].numpy()] == [one.text for one in wanted]
    found = signatures["between"](
        text=tf.constant(TEXTS[:2]),
        source_language=tf.constant([toy.TARGET, toy.SOURCE]),
        target_language=tf.constant([toy.SOURCE, toy.TARGET]),
    )
    there = either(TEXTS[0], source_language=toy.TARGET, target_language=toy.SOURCE)
    for number, one in enumerate((there, wanted[1])):
        assert found["translation"].numpy()[number].decode() == one.text
        np.testing.assert_allclose(found["score"][number], one.score, rtol=1e-4)


@pytest.mark.reference
@pytest.mark.parametrize("num_beams", [1, 3])
def test_transformers_translates_alike(num_beams, either, tmp_path):
    import torch
    import transformers

    made = either.with_options(num_beams=num_beams)
    folder = kt.save(made, tmp_path / "hf", format="huggingface")
    model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not report["missing_keys"] | report["unexpected_keys"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = tokenizer(TEXTS[:2], padding=True, return_tensors="pt")
    np.testing.assert_array_equal(given["input_ids"], made._source(TEXTS[:2]))
    with torch.no_grad():
        tokens = model.eval().generate(**given).numpy()
    assert tokens[:, 0].tolist() == [made.tokenizer.start_token_id] * 2
    found = made._hypotheses(TEXTS[:2], 1).token_ids.numpy()[:, 0]
    np.testing.assert_array_equal(found[:, : tokens.shape[1] - 1], tokens[:, 1:])
    assert len(set(map(tuple, tokens.tolist()))) == 2
    texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    assert [answer.text for answer in made(TEXTS[:2])] == texts
