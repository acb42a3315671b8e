"""Classification with BART and mBART, trained and zero-shot: folders, training, exports."""

import json
import shutil

import encoder_decoder_toys as toys
import mbart_toy
import numpy as np
import pytest
import tensorflow as tf
import tiny
from answer_checks import same_answers

import keras_transformers as kt
from keras_transformers.convert import save_weights
from keras_transformers.families.bart.model import bart
from keras_transformers.families.mbart.model import mbart
from keras_transformers.models.as_encoder import as_end_pooled_encoder
from keras_transformers.saved_model.checks import check
from keras_transformers.tasks.explaining import integrated_gradients

TEXTS = ["two dogs run near the shore", "a very good film!", ""]
TOPICS = [["dogs", "the sea", "film"], ["dogs", "film"], ["a"]]
LABELS = ["contradiction", "neutral", "entailment"]
SIZES = {"num_encoder_layers": 1, "num_decoder_layers": 2, "num_heads": 2, "hidden_dim": 16}
SIZES |= {"intermediate_dim": 24, "max_sequence_length": 48}


def folder_of(family, made):
    """A folder of a classifier with random weights, with BART Large MNLI's labels."""
    if family == "bart":
        tokenizer, start = toys.bart_tokenizer(made / "files"), {"start_token_id": 2}
        body = bart(vocabulary_size=tokenizer.vocabulary_size, **SIZES)
    else:
        tokenizer, start = mbart_toy.tokenizer(family, made / "files", target_language=None), {}
        body = mbart(vocabulary_size=tokenizer.vocabulary_size, **SIZES)
    model = kt.heads.classifier(as_end_pooled_encoder(body, end_token_id=2, **start), 3)
    pipeline = kt.pipelines.TextClassifier(tiny.lively(model), tokenizer, LABELS, pair=True)
    return kt.save(pipeline, made / "folder", format="huggingface")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of("bart", tmp_path_factory.mktemp("bart"))


@pytest.fixture(scope="module")
def classify(folder):
    return kt.load(folder, pipeline="zero_shot_classification")


@pytest.fixture(scope="module")
def without_head(tmp_path_factory):
    """A folder of a BART that writes texts."""
    made = tmp_path_factory.mktemp("bart")
    tokenizer = toys.bart_tokenizer(made / "files")
    model = tiny.lively(bart(vocabulary_size=tokenizer.vocabulary_size, **SIZES))
    save_weights(model, made / "folder", tokenizer, family="bart")
    return made / "folder"


def test_a_folder_serves_both_kinds_of_classification(folder, classify, tmp_path, untraced):
    judge = kt.load(folder)
    assert (type(judge), judge.labels) == (kt.pipelines.TextClassifier, tuple(LABELS))
    assert judge.pair
    answers = judge(["a dog", "two dogs"], ["near", ""])
    same_answers([judge("a dog", "near")], answers[:1])
    assert answers[0].probabilities != answers[1].probabilities
    own = kt.load(kt.save(judge, tmp_path / "own"))
    assert own(["a dog", "two dogs"], ["near", ""]) == answers
    again = kt.load(kt.save(judge, tmp_path / "theirs", format="huggingface"))
    assert again(["a dog", "two dogs"], ["near", ""]) == answers
    config = json.loads((tmp_path / "theirs/config.json").read_text())
    assert config["architectures"] == ["BartForSequenceClassification"]
    written = kt.save(classify, tmp_path / "zero", format="huggingface")
    assert kt.load(written).config() == classify.config()


def test_zero_shot_answers_are_those_of_pairs(folder, classify, untraced):
    ids = classify.encode(tf.constant(["a dog"]), tf.constant(["near"]))["token_ids"][0].numpy()
    ends = [classify.tokenizer.vocabulary[token] for token in ids]
    assert (ends[0], ends[-1], ends.count("</s>")) == ("<s>", "</s>", 3)
    judge = kt.load(folder)
    for text, topics, answer in zip(TEXTS, TOPICS, classify(TEXTS, TOPICS), strict=True):
        pairs = [f"This example is {topic}." for topic in topics]
        tokens = judge.encode(tf.constant([text] * len(pairs)), tf.constant(pairs))
        rows = judge.model(tokens)["logits"].numpy()
        entailed = np.exp(rows[:, 2])
        wanted = entailed / entailed.sum()
        if len(topics) == 1:
            wanted = entailed / (entailed + np.exp(rows[:, 0]))
        np.testing.assert_allclose(answer.probabilities, wanted, atol=1e-5)
        assert answer.label == topics[wanted.argmax()]


def test_what_its_halves_attend_to_has_names(classify):
    maps = kt.inspection.attention(classify, "a dog", ["film"])
    assert sorted(maps) == ["cross", "decoder", "encoder"]
    text, read = maps["encoder"].keys, maps["decoder"].keys
    assert read == ["</s>", *text[:-1]]
    assert maps["cross"].keys == maps["cross"].queries == text
    assert maps["decoder"].probabilities.shape[0] == 2


def test_an_explanation_moves_a_token_on_both_sides():
    """Where its path starts, every word has the vector of padding, for both halves."""
    body = bart(vocabulary_size=9, **SIZES)
    encoder = as_end_pooled_encoder(body, end_token_id=2, start_token_id=2)
    model = kt.heads.classifier(encoder, 2)
    for variable in model.trainable_variables:
        variable.assign(variable * 1.5)
    ids = tf.constant([[0, 5, 6, 7, 2]])
    inputs = {"token_ids": ids, "padding_mask": tf.ones_like(ids, tf.bool)}

    def scores(outputs, others):
        return outputs["logits"][:, 1]

    found = integrated_gradients(model, 1, inputs, ids > 4, scores, {})
    shares, score, without = (each[0].numpy() for each in found)
    assert model(inputs)["logits"][0, 1].numpy() == pytest.approx(score, abs=1e-6)
    assert abs(score - without) > 0.01
    assert shares.sum() == pytest.approx(score - without, rel=0.1)
    embeddings = model.get_layer("token_embedding").embeddings
    table = embeddings.numpy()
    table[5:8] = table[1]
    embeddings.assign(table)
    assert model(inputs)["logits"][0, 1].numpy() == pytest.approx(without, abs=1e-6)


def test_a_model_without_a_head_gets_a_new_one(without_head, caplog):
    judge = kt.load(without_head, pipeline="classification", labels=["bad", "good"])
    assert "the layers pooler, logits for classification are new" in caplog.text
    assert "classification does not use final_logits_bias" in caplog.text
    writer = kt.load(without_head)
    assert (writer.task, judge.task) == ("translation", "classification")
    for layer in ("encoder_layer_0", "decoder_layer_1", "token_embedding"):
        pairs = zip(*(x.model.get_layer(layer).weights for x in (judge, writer)), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs)
    with pytest.raises(ValueError, match="no head for zero_shot_classification: pass labels"):
        kt.load(without_head, pipeline="zero_shot_classification")
    with pytest.raises(ValueError, match="only serve translation, classification, .*regression"):
        kt.load(without_head, pipeline="tagging")


def test_a_head_of_other_labels_is_replaced_or_refused(folder, tmp_path, caplog):
    other = kt.load(folder, pipeline="classification", labels=["bad", "good"])
    assert other.model.output["logits"].shape == (None, 2)
    assert "does not use classification_head.dense.bias" in caplog.text
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    for names in ({}, {"id2label": {"0": "no", "1": "maybe", "2": "yes"}}):
        rest = {k: v for k, v in config.items() if k not in ("id2label", "label2id")}
        (copy / "config.json").write_text(json.dumps(rest | names))
        with pytest.raises(ValueError, match="one of them starting with 'entail'"):
            kt.load(copy, pipeline="zero_shot_classification")
    (copy / "config.json").write_text(
        json.dumps({**config, "architectures": ["BartForQuestionAnswering"]})
    )
    with pytest.raises(ValueError, match="BartForQuestionAnswering: .*one of .*classification"):
        kt.load(copy)


@pytest.mark.parametrize("family", ["mbart", "mbart_50"])
def test_an_mbart_reads_its_language(family, tmp_path, untraced):
    judge = kt.load(folder_of(family, tmp_path))
    assert judge.labels == tuple(LABELS)
    ids = judge.encode(["a dog"], ["two"])["token_ids"]
    names = [judge.tokenizer.vocabulary[token] for token in ids[0]]
    ends = (names[0], names[-1]) if family == "mbart_50" else (names[-1], names[-2])
    assert ends == ("de_DE", "</s>")
    assert len(judge(["a dog", "two dogs"], ["two", ""])) == 2


@pytest.mark.slow
def test_texts_train_a_new_head(without_head):
    judge = kt.load(without_head, pipeline="classification", labels=["dog", "film"])
    texts = ["a dog", "two dogs run", "a film", "very good film"] * 8
    labels = ["dog", "dog", "film", "film"] * 8
    kt.fit(judge, (texts, labels), epochs=4, batch_size=8, learning_rate=3e-3)
    assert kt.evaluate(judge, (texts, labels))["accuracy"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_its_exports_answer_alike(folder, dtype, tmp_path):
    wide = {**SIZES, "num_heads": 2, "hidden_dim": 64, "intermediate_dim": 128}
    tokenizer = kt.load(folder).tokenizer
    body = bart(vocabulary_size=tokenizer.vocabulary_size, **wide)
    encoder = as_end_pooled_encoder(body, end_token_id=2, start_token_id=2)
    model = kt.heads.classifier(encoder, 3)
    for variable in model.trainable_variables:
        variable.assign(variable * 1.3 if len(variable.shape) > 1 else variable)
    classify = kt.pipelines.ZeroShotClassifier(model, tokenizer, LABELS)
    export = kt.export(classify, tmp_path / "export", weights_dtype=dtype)
    assert list(check.failures(str(export))) == []
    signature = tf.saved_model.load(str(export)).signatures["serving_default"]
    topics = [[*row, *[""] * (3 - len(row))] for row in TOPICS]
    found = signature(text=tf.constant(TEXTS), labels=tf.constant(topics))
    for row, answer in enumerate(classify(TEXTS, TOPICS)):
        np.testing.assert_allclose(
            found["probabilities"][row, : len(answer.probabilities)],
            answer.probabilities,
            atol=1e-5 if dtype == "float32" else 0.02,
        )


@pytest.mark.slow
def test_an_export_of_a_classifier_explains(folder, tmp_path):
    loaded = kt.load(folder)
    judge = kt.pipelines.TextClassifier(loaded.model, loaded.tokenizer, LABELS)
    export = kt.export(judge, tmp_path, explain=True)
    signatures = tf.saved_model.load(str(export)).signatures
    labels = signatures["serving_default"](text=tf.constant(TEXTS))["label"].numpy()
    assert [label.decode() for label in labels] == [each.label for each in judge(TEXTS)]
    assert "explain" in signatures


@pytest.mark.reference
@pytest.mark.parametrize("family", ["bart", "mbart", "mbart_50"])
def test_answers_equal_transformers(family, tmp_path):
    import transformers

    folder = folder_of(family, tmp_path)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    classify = kt.load(folder, pipeline="zero_shot_classification")
    pairs = ["a dog", "two dogs are near"], ["the shore", "ein kleiner Hund läuft"]
    wanted = tokenizer(*pairs, padding=True)
    ids = classify.encode(*map(tf.constant, pairs))["token_ids"].numpy()
    np.testing.assert_array_equal(ids, wanted["input_ids"])
    pipeline = transformers.pipeline("zero-shot-classification", theirs, tokenizer=tokenizer)
    for several in (False, True):
        ours = classify.with_options(multi_label=several)
        for text, topics in zip(TEXTS[:2], TOPICS[:2], strict=True):
            scores = pipeline(text, topics, multi_label=several)
            by_label = dict(zip(scores["labels"], scores["scores"], strict=True))
            found = dict(zip(topics, ours(text, topics).probabilities, strict=True))
            assert found == pytest.approx(by_label, abs=1e-5)
