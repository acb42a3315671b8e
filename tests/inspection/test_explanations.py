"""Explanations: shares that add up, that find what matters, and equal those of exports."""

import json
from xml.etree import ElementTree

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from checks import says

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.inspection import Explanation
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.explaining import integrated_gradients, log_odds
from keras_transformers.tokenizers import NgramTokenizer

TEXTS = {
    "classification": ("a good film!",),
    "multi_label_classification": ("a good film!",),
    "regression": ("a good film", "very bad"),
    "next_sentence": ("a good film", "very bad"),
    "reranking": ("a good film", "very bad"),
    "embedding": ("a good film", "very bad films"),
    "question_answering": ("a good film?", "very bad long film. " * 6),
}


@pytest.fixture(scope="module", params=TEXTS)
def case(request):
    """A task, its tiny pipeline, the texts, and what explains its answer to them."""
    pipeline = tiny.pipeline(request.param)
    texts = TEXTS[request.param]
    return request.param, pipeline, texts, kt.explain(pipeline, *texts)


def answer_of(task, pipeline, texts):
    """The score of the pipeline's own answer, in the unit of its explanations."""
    if task == "embedding":
        one, other = (np.array(pipeline(text).vector) for text in texts)
        return one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    if task == "reranking":
        probability = pipeline(texts[0], [texts[1]]).scores[0]
    elif task in ("regression", "question_answering"):
        return pipeline(*texts).score
    elif task == "next_sentence":
        probability = pipeline(*texts).probability
    else:
        probability = max(pipeline(*texts).probabilities)
    return np.log(probability / (1 - probability))


@pytest.mark.one_case
def test_shares_add_up_to_the_answers_score(case):
    task, pipeline, texts, why = case
    assert why.score == pytest.approx(answer_of(task, pipeline, texts), abs=1e-4)
    assert np.abs(why.shares).max() > 1e-3
    assert abs(why.gap) < 1e-4
    assert why.shares.sum() == pytest.approx(why.score - why.baseline_score, abs=1e-4)


@pytest.mark.one_case
@pytest.mark.parametrize("task", ["classification", "multi_label_classification", "next_sentence"])
def test_shares_add_up_to_calibrated_answers(task, monkeypatch):
    pipeline = tiny.pipeline(task)
    monkeypatch.setattr(pipeline, "temperature", 2.5)
    why = kt.explain(pipeline, *TEXTS[task])
    assert why.score == pytest.approx(answer_of(task, pipeline, TEXTS[task]), abs=1e-4)
    assert abs(why.gap) < 1e-4


def test_tokens_are_parts_of_their_texts(case):
    _, _, texts, why = case
    assert why.texts == texts
    spans = zip(why.text_index, why.starts, why.ends, strict=True)
    assert why.tokens == [texts[i][start:end] for i, start, end in spans]
    assert set(why.text_index.tolist()) == set(range(len(texts)))


@pytest.mark.slow
def test_the_label_that_is_explained_can_be_chosen():
    pipeline = tiny.pipeline("classification")
    answer = pipeline("a good film!")
    whys = {label: kt.explain(pipeline, "a good film!", label=label) for label in pipeline.labels}
    assert kt.explain(pipeline, "a good film!").label == answer.label
    # Of two labels, what speaks for one speaks against the other.
    negative, positive = (whys[label] for label in pipeline.labels)
    np.testing.assert_allclose(negative.shares, -positive.shares, atol=1e-5)
    assert positive.label == "positive"


def test_the_shares_of_an_answer_are_those_of_its_start_and_its_end():
    pipeline, texts = tiny.pipeline("question_answering"), TEXTS["question_answering"]
    whole, start, end = (
        kt.explain(pipeline, *texts, label=label) for label in ("answer", "start", "end")
    )
    np.testing.assert_allclose(start.shares + end.shares, whole.shares, atol=1e-5)
    answer = pipeline(*texts)
    assert any(
        (s, e) == (answer.start, e) or e == answer.end
        for i, s, e in zip(whole.text_index, whole.starts, whole.ends, strict=True)
        if i == 1
    )


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [None, -1e6])
def test_without_an_answer_the_score_is_that_of_none(threshold):
    ask = tiny.pipeline("question_answering").with_options(no_answer_threshold=threshold)
    for context in ("", "very bad long film. " * 6):
        why = kt.explain(ask, "a good film?", context)
        assert why.score == pytest.approx(ask("a good film?", context).score, abs=1e-5)


@pytest.mark.slow
def test_prompts_are_read_but_not_explained():
    plain = tiny.pipeline("embedding")
    search = plain.with_options(prompts={"query": "very long ", "document": "a film "})
    why = kt.explain(search, "good", "bad films")
    assert why.tokens == ["good", "bad", "film", "s"]
    assert why.starts.tolist() == [0, 0, 4, 8]
    query = search("good", prompt_name="query").vector
    document = search("bad films", prompt_name="document").vector
    cosine = np.dot(query, document) / np.linalg.norm(query) / np.linalg.norm(document)
    assert why.score == pytest.approx(cosine, abs=1e-5)
    assert abs(why.gap) < 1e-4
    swapped = kt.explain(plain, "bad films", "good")
    assert swapped.score == pytest.approx(kt.explain(plain, "good", "bad films").score, abs=1e-6)


def test_tokens_that_the_model_does_not_read_have_no_share():
    why = kt.explain(tiny.pipeline("classification"), "long " * 50)
    assert len(why.tokens) == 14  # of 16 positions
    assert "…" not in why.svg()
    assert kt.explain(tiny.pipeline("classification"), "").tokens == []


def test_lists_are_explained_row_by_row():
    pipeline = tiny.pipeline("regression")
    several = kt.explain(pipeline, ["a film", "good"], ["bad", "very long film"])
    for why, texts in zip(several, [("a film", "bad"), ("good", "very long film")], strict=True):
        alone = kt.explain(pipeline, *texts)
        assert why.texts == texts
        np.testing.assert_allclose(why.shares, alone.shares, atol=1e-6)
    assert kt.explain(pipeline, [], []) == []


SIZES = {
    "vocabulary_size": 20,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "max_sequence_length": 8,
}


@pytest.mark.one_case
@pytest.mark.parametrize(
    "family", ["albert", "deberta", "distilbert", "modern_bert", "mpnet", "roberta"]
)
def test_shares_add_up_in_every_kind_of_encoder(family):
    """With these weights a score bends sharply, so the path has many points."""
    build = getattr(getattr(kt.families, family), family)
    options = SIZES | ({"embedding_dim": 4} if family == "albert" else {"intermediate_dim": 16})
    keras.utils.set_random_seed(0)
    model = tiny.lively(heads.classifier(build(**options), 2))
    ids = np.array([[2, 5, 6, 7, 3, 0], [2, 9, 8, 7, 6, 3]], np.int32)
    inputs = {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": ids > 0}
    shares, score, baseline = integrated_gradients(
        model,
        0,
        {name: tf.constant(inputs[name]) for name in model.input},
        tf.constant(ids > 3),
        lambda outputs, others: log_odds(outputs["logits"], others["index"]),
        {"index": tf.constant([0, 1])},
        num_steps=128,
    )
    assert np.all(shares.numpy()[ids <= 3] == 0)
    assert np.abs(shares).max() > 0.01
    np.testing.assert_allclose(tf.reduce_sum(shares, axis=1), score - baseline, atol=0.02)
    logits = model({name: tf.constant(inputs[name]) for name in model.input})["logits"]
    np.testing.assert_allclose(score, log_odds(logits, tf.constant([0, 1])), atol=1e-4)


# What fastText adds up has exact shares.


@pytest.fixture(scope="module")
def bag():
    """A fastText of words and pairs of words, with two classes."""
    tokenizer = NgramTokenizer(["</s>", "good", "bad", "film"], num_buckets=20, word_ngrams=2)
    encoder = kt.families.fasttext.fasttext(vocabulary_size=24, embedding_dim=4)
    model = tiny.lively(heads.classifier(encoder, 2, dropout=0.0))
    return kt.pipelines.TextClassifier(
        model, tokenizer, ["negative", "positive"], max_sequence_length=50
    )


def test_shares_of_a_bag_of_words_are_exact(bag):
    why = kt.explain(bag, "good film film", label="positive")
    vectors = bag.model.get_layer("token_embedding").embeddings.numpy()
    kernel, _ = bag.model.get_layer("logits").get_weights()
    ids = bag.tokenizer.tokenize(tf.constant(["good film film"]))[0].numpy()
    exact = vectors[ids] @ (kernel[:, 1] - kernel[:, 0]) / len(ids)
    np.testing.assert_allclose(why.shares, exact, atol=1e-6)
    assert why.tokens == ["good", "film", "film", "", "good film", "film film", "film"]
    assert abs(why.gap) < 1e-6
    assert why.svg().count('class="words"') == 5  # each word once, and two blanks


# What matters is found: the property that benchmarks/explanations.py measures on SST-2.


@pytest.fixture(scope="module")
def cues():
    """A classifier that has learnt that "good" and "bad" decide, and texts with one of them."""
    draw = np.random.default_rng(0)
    fillers = ["a", "film", "long", "very", "."]

    def text(cue):
        words = list(draw.choice(fillers, 8))
        words[draw.integers(8)] = cue
        return " ".join(words)

    labels = ["good", "bad"] * 48
    texts = [text(label) for label in labels]
    keras.utils.set_random_seed(1)
    model = tiny.lively(heads.classifier(tiny.encoder(), 2, dropout=0.0))
    classify = kt.pipelines.TextClassifier(model, tiny.wordpiece(), ["good", "bad"])
    kt.fit(classify, (texts, labels), epochs=12, learning_rate=2e-2, batch_size=16)
    return classify, texts[:24], labels[:24]


def test_deleting_important_tokens_moves_the_answer_more_than_deleting_others(cues):
    classify, texts, labels = cues
    draw = np.random.default_rng(1)
    whys = kt.explain(classify, texts)

    def moved(deleted):
        kept = [
            " ".join(word for i, word in enumerate(text.split()) if i not in places)
            for text, places in zip(texts, deleted, strict=True)
        ]
        pairs = zip(classify(texts), classify(kept), labels, strict=True)
        place = classify.labels.index
        return np.array(
            [abs(a.probabilities[place(y)] - b.probabilities[place(y)]) for a, b, y in pairs]
        )

    important = moved([why.most_important(3) for why in whys])
    by_chance = moved([draw.choice(8, 3, replace=False) for _ in texts])
    assert np.median(important) > 0.3
    assert np.median(important) > 3 * np.median(by_chance)


# How it is shown.


@pytest.fixture(scope="module")
def why():
    return Explanation(
        texts=("Straße <b> \x1b東京\n good",),
        tokens=["Straße", "東", "京", "good"],
        text_index=np.zeros(4, np.int32),
        starts=np.array([0, 12, 13, 16], np.int32),
        ends=np.array([6, 13, 14, 20], np.int32),
        shares=np.array([0.5, -2.0, 0.0, 1.25], np.float32),
        label="a <label>",
        score=1.0,
        baseline_score=1.5,
    )


def test_a_line_names_the_strongest_tokens(why):
    line = str(why)
    assert line.index("東 -2.00") < line.index("good +1.25") < line.index("Straße +0.50")
    assert "1.00" in line
    assert "1.50" in line
    assert why.gap == pytest.approx(0.25)
    assert why.most_important(2).tolist() == [3, 0]


def test_a_picture_has_the_whole_text_in_shades(why):
    svg = ElementTree.fromstring(why.svg())
    space = "{http://www.w3.org/2000/svg}"
    words = [x.text for x in svg.iter(f"{space}text") if x.get("class") == "words"]
    assert "".join(words) == "Straße <b> \ufffd東京  good"
    boxes = [x.get("class") for x in svg.iter(f"{space}rect")]
    assert boxes == ["page", "for2", "against8", "for5"]
    assert "prefers-color-scheme: dark" in why.svg()
    assert why._repr_html_().startswith("<img alt=")
    assert "<label>" not in why._repr_html_()


def test_long_texts_are_broken_into_lines():
    text = "word " * 200
    count = np.arange(200, dtype=np.int32)
    long = Explanation(
        (text,), ["word"] * 200, count * 0, count * 5, count * 5 + 4, count / 200, "a", 1.0, 0.0
    )
    svg = ElementTree.fromstring(long.svg())
    width, height = map(float, svg.get("viewBox").split()[2:])
    boxes = [x for x in svg.iter() if x.tag.endswith("rect")][1:]
    assert all(float(x.get("x")) + float(x.get("width")) <= width for x in boxes)
    assert max(float(x.get("y")) for x in boxes) + 22 <= height


def test_tables_and_json_have_every_token(why):
    frame = why.to_frame()
    assert frame["token"].tolist() == why.tokens
    assert frame["share"].tolist() == [0.5, -2.0, 0.0, 1.25]
    fields = json.loads(why.to_json())
    assert fields["gap"] == pytest.approx(0.25)
    row = {name: fields[name] for name in fields if name not in ("texts", "gap")}
    assert Explanation.of([why.texts[0].encode()], row).to_dict() == why.to_dict()


# What is refused.


def refusal(function, *arguments, **options):
    """The message with which a call is refused."""
    with pytest.raises(ValueError) as error:
        function(*arguments, **options)
    return str(error.value)


@pytest.mark.parametrize("task", sorted(set(tiny.TASKS) - set(TEXTS)))
def test_other_tasks_are_refused_with_what_can_be_explained(task, tmp_path):
    pipeline = tiny.pipeline(task)
    words = f"{type(pipeline).__name__} ... classification ... search"
    assert says(refusal(kt.explain, pipeline, "a"), words)
    assert says(refusal(kt.export, pipeline, tmp_path / "1", explain=True), words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("texts", "options", "words"),
    [
        ((), {}, "TextClassifier take text, not 0 ... one string"),
        (("a", "b"), {}, "TextClassifier take text, not 2 ... one string"),
        (("a",), {"label": "joy"}, "label='joy' ... negative, positive"),
        ((["a", None],), {}, "text[1] ... None ... string"),
        ((["a\ud800"],), {}, "text[0]"),
        (({"text": ["a"]},), {}, "columns"),
    ],
)
def test_wrong_arguments_are_named(texts, options, words):
    assert says(refusal(kt.explain, tiny.pipeline("classification"), *texts, **options), words)


def test_unequal_lists_and_other_objects_are_named():
    pipeline = tiny.pipeline("regression")
    unequal = refusal(kt.explain, pipeline, ["a", "b"], ["c"])
    assert says(unequal, "'text': 2, 'text_b': 1")
    assert says(refusal(kt.explain, pipeline.model, "a"), "HeadedEncoder ... load")


def test_a_tokenizer_that_does_not_say_where_tokens_are_is_refused(monkeypatch):
    monkeypatch.delattr(kt.tokenizers.WordPieceTokenizer, "tokenize_with_offsets")
    words = "WordPieceTokenizer ... tokenize_with_offsets"
    assert says(refusal(kt.explain, tiny.pipeline("classification"), "a"), words)


def test_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    words = "'jax' ... KERAS_BACKEND=tensorflow"
    assert says(refusal(kt.explain, tiny.pipeline("classification"), "a"), words)


def test_log_odds_of_softmax():
    logits = tf.constant([[1.0, 2.0, -1.0], [300.0, 0.0, 0.0]])
    found = log_odds(logits, tf.constant([1, 0])).numpy()
    p = np.exp(2.0) / np.exp([1.0, 2.0, -1.0]).sum()
    assert found[0] == pytest.approx(np.log(p / (1 - p)), abs=1e-6)
    assert found[1] == pytest.approx(300 - np.log(2), abs=1e-3)


def test_rows_of_another_signature_are_cut_to_their_own_count():
    outputs = {
        "tokens": np.array([[b"a", b"b"], [b"c", b""]], object),
        "num_tokens": np.array([2, 1], np.int32),
    }
    for task in (None, "classification", "multi_label_classification", "tagging"):
        answer = reading.answer_type(task) if task else None
        rows = list(reading.rows(outputs, ["tokens"], answer))
        assert [row["tokens"] for row in rows] == [["a", "b"], ["c"]]
