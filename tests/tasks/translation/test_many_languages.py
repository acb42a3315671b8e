"""Pipelines of M2M-100 and NLLB: languages in calls, files, exports and training."""

import json

import m2m_100_toy as toy
import numpy as np
import pytest
import tensorflow as tf
from logged import warnings_in

import keras_transformers as kt

TEXTS = ["a small dog", "two dogs run near the shore", ""]
KINDS = ("m2m_100", "nllb")


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def translate(kind, tmp_path_factory):
    return toy.translator(kind, tmp_path_factory.mktemp(kind))


@pytest.mark.one_case
def test_the_target_language_is_the_first_token(kind, translate):
    source, target = toy.LANGUAGES[kind]
    languages = translate.tokenizer.languages
    assert translate.first_token_id == languages[target]
    found = translate._hypotheses(TEXTS[:2], 1)
    assert (found.token_ids[:, 0, 0] == languages[target]).numpy().all()
    assert np.asarray(translate._source(TEXTS[:2]))[:, 0].tolist() == [languages[source]] * 2
    other = translate.with_options(source_language=target, target_language=source)
    assert other.first_token_id == languages[source]
    assert np.asarray(other._source(TEXTS[:1]))[0, 0] == languages[target]
    assert translate(TEXTS, target_language=source) != translate(TEXTS)
    assert translate.read("a small dog")["target"][:1] == ["</s>"]


@pytest.mark.slow
def test_saved_in_either_format_it_comes_back(kind, translate, tmp_path, caplog):
    forms = ("huggingface", "keras_transformers")
    loaded = [kt.load(kt.save(translate, tmp_path / form, format=form)) for form in forms]
    assert not warnings_in(caplog)
    for again in loaded:
        assert again.config() == translate.config()
        assert again.tokenizer.config() == translate.tokenizer.config()
        assert again(TEXTS) == translate(TEXTS)
    source, target = toy.LANGUAGES[kind]
    back = kt.load(tmp_path / "huggingface", source_language=target, target_language=source)
    assert back(TEXTS) == translate(TEXTS, source_language=target, target_language=source)


def test_a_folder_with_only_tokenizer_json_is_refused_by_the_missing_file(translate, tmp_path):
    folder = kt.save(translate, tmp_path / "folder", format="huggingface")
    (folder / toy.MODEL_FILE).unlink()
    model = {"type": "BPE", "vocab": {"<s>": 0, "<pad>": 1, "a": 2}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model}))
    with pytest.raises(FileNotFoundError, match=f"folder/{toy.MODEL_FILE}"):
        kt.load(folder)


@pytest.mark.slow
def test_the_export_takes_languages_in_requests(kind, translate, tmp_path):
    folder = kt.export(translate, tmp_path / "export", examples=TEXTS[:2])
    signatures = tf.saved_model.load(str(folder)).signatures
    assert set(signatures) == {"serving_default", "n_best", "between", "attend", "tokenize"}
    found = signatures["serving_default"](text=tf.constant(TEXTS))
    wanted = translate(TEXTS)
    assert [text.decode() for text in found["translation"].numpy()] == [one.text for one in wanted]
    source, target = toy.LANGUAGES[kind]
    found = signatures["between"](
        text=tf.constant(TEXTS[:2]),
        source_language=tf.constant([target, source]),
        target_language=tf.constant([source, target]),
    )
    there = translate(TEXTS[0], source_language=target, target_language=source)
    for number, one in enumerate((there, wanted[1])):
        assert found["translation"].numpy()[number].decode() == one.text
        np.testing.assert_allclose(found["score"][number], one.score, rtol=1e-4)


def test_it_trains_with_the_languages(translate):
    pairs = [("a small dog", "zwei Hunde"), ("two dogs", "Hunde laufen")] * 4
    batches = kt.data.translation.PairBatches(pairs, translate, batch_tokens=64, seed=0)
    inputs, targets, _ = next(iter(batches.dataset()))
    languages = translate.tokenizer.languages
    source, target = (
        languages[code] for code in (translate.source_language, translate.target_language)
    )
    assert (inputs["source_token_ids"][:, 0] == source).numpy().all()
    assert (inputs["target_token_ids"][:, 0] == 2).numpy().all()
    assert (targets["logits"][:, 0] == target).numpy().all()


def test_languages_that_do_not_fit_are_refused(kind, translate, tmp_path):
    with pytest.raises(ValueError, match="target_language='xx': expected '"):
        translate.with_options(target_language="xx")
    bare = toy.tokenizer(kind, tmp_path, target_language=None)
    with pytest.raises(ValueError, match="target_language is not set: pass one of '.* pipeline"):
        kt.pipelines.Translator(translate.model, bare)


@pytest.mark.reference
@pytest.mark.parametrize("num_beams", [1, 3])
def test_transformers_translates_alike(kind, num_beams, translate, tmp_path):
    import torch
    import transformers

    made = translate.with_options(num_beams=num_beams)
    folder = kt.save(made, tmp_path / "hf", format="huggingface")
    model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not report["missing_keys"] | report["unexpected_keys"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    source, target = toy.LANGUAGES[kind]
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == (source, target)
    given = tokenizer(TEXTS[:2], padding=True, return_tensors="pt")
    np.testing.assert_array_equal(given["input_ids"], made._source(TEXTS[:2]))
    with torch.no_grad():
        tokens = model.eval().generate(**given)[:, 1:].numpy()
    found = made._hypotheses(TEXTS[:2], 1).token_ids.numpy()[:, 0]
    np.testing.assert_array_equal(found[:, : tokens.shape[1]], tokens)
