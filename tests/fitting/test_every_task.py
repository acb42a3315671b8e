"""`fit` and `evaluate` of each task: the tiny pipelines learn, and figures have baselines."""

import copy
import functools

import keras
import numpy as np
import pytest
import tiny

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.families.fasttext.model import fasttext
from keras_transformers.tasks.task import all_tasks

TRAINERS = {name: task.trainer() for name, task in all_tasks().items() if task.trainer()}
GOOD, BAD = "a good film", "a bad film"
# Of one length, so that a step has one graph.
TEXTS = [f"{GOOD if i % 2 else BAD} {'.!'[i % 3 == 0]}" for i in range(24)]
LABELS = [i % 2 for i in range(24)]
CONTEXT = "a bad film . a very good film !"


def pixels():
    """Bright images of class 1, dark ones of class 0."""
    random = np.random.default_rng(0)
    return [random.integers(0, 99, (8, 12, 3)) + 150 * label for label in LABELS]


DATA = {
    "classification": ((TEXTS, LABELS), "accuracy", "majority"),
    "multi_label_classification": (
        (TEXTS, [["joy", "surprise"] if label else ["anger"] for label in LABELS]),
        "mean_average_precision",
        "micro_f1_of_frequent_labels",
    ),
    "regression": (
        (TEXTS, ["a film"] * 24, [float(label) for label in LABELS]),
        "mean_squared_error",
        "mean_squared_error_of_mean",
    ),
    "reranking": (
        [
            (f"a {word} film", f"{other} !", float(other == "good"))
            for word in ("good", "bad", "long")
            for other in ("good", "bad", "long", "very")
        ]
        * 2,
        "ndcg_at_10",
        "ndcg_at_10_of_bm25",
    ),
    "next_sentence": ((TEXTS, ["a film"] * 24, LABELS), "accuracy", "majority"),
    "tagging": (
        (
            [text.split() for text in TEXTS],
            [[("B-X" if word == "good" else "O") for word in text.split()] for text in TEXTS],
        ),
        "entity_f1",
        None,
    ),
    "question_answering": (
        {
            "question": ["good", "bad"] * 8,
            "context": [CONTEXT] * 16,
            "answers": [
                {"text": ["good film"], "answer_start": [CONTEXT.index("good film")]},
                {"text": ["bad film"], "answer_start": [CONTEXT.index("bad film")]},
            ]
            * 8,
        },
        "f1",
        None,
    ),
    "multiple_choice": (
        [
            {
                "text": "a film",
                "choices": ["good", "bad"][:: 1 if label else -1],
                "label": 1 - label,
            }
            for label in LABELS
        ],
        "accuracy",
        "chance",
    ),
    "image_classification": ((pixels(), LABELS), "accuracy", "majority"),
    "translation": (
        [("a small dog runs", "dogs are near the"), ("dogs are near the", "a small dog runs")] * 12,
        "bleu",
        "bleu_of_copies",
    ),
    "embedding": (
        [(f"a {word} film", f"{word} !") for word in ("good", "bad", "long", "very")] * 6,
        "ndcg_at_10",
        "ndcg_at_10_of_bm25",
    ),
    "sparse_embedding": (
        [(f"a {word} film", f"{word} !") for word in ("good", "bad", "long", "very")] * 6,
        "ndcg_at_10",
        "ndcg_at_10_of_bm25",
    ),
    "late_interaction": (
        [(f"a {word} film", f"{word} !") for word in ("good", "bad", "long", "very")] * 6,
        "ndcg_at_10",
        "ndcg_at_10_of_bm25",
    ),
    "generation": (
        ["a small dog runs", "two dogs are near the shore"] * 12,
        "perplexity",
        "perplexity_of_unigrams",
    ),
}
LOWER_IS_BETTER = {"mean_squared_error", "perplexity"}
ENOUGH = {"translation": 60, "question_answering": 60}  # of 100


def fresh(task):
    """The tiny pipeline with a new model."""
    pipeline = copy.copy(tiny.pipeline(task))
    keras.utils.set_random_seed(1)
    pipeline.__dict__.pop("_graph", None)
    model = pipeline.model
    pipeline.model = type(model).from_config(model.get_config())
    if task == "next_sentence":  # whose head learns little from weights near zero
        pipeline.model.set_weights(model.get_weights())
    return pipeline


def bag_of_words(task="classification"):
    """The tiny pipeline, which has labels, with a new model of three weights and dropout.

    For tests of what surrounds a model: one of BERT takes three times as long to trace.
    """
    pipeline = copy.copy(tiny.pipeline(task))
    keras.utils.set_random_seed(1)
    pipeline.__dict__.pop("_graph", None)
    encoder = fasttext(vocabulary_size=len(tiny.VOCABULARY), embedding_dim=8)
    pipeline.model = heads.classifier(encoder, len(pipeline.labels))
    return pipeline


def training(task):
    """The options with which the toy learns in seconds."""
    if task == "translation":
        return {"epochs": 14, "learning_rate": 1e-2, "batch_tokens": 64, "quiet": True}
    if task in ("regression", "reranking"):
        return {"epochs": 8, "learning_rate": 1e-2, "batch_size": 2, "quiet": True}
    if task == "next_sentence":
        return {"epochs": 12, "learning_rate": 2e-2, "batch_size": 4, "quiet": True}
    return {"epochs": 5, "learning_rate": 2e-2, "batch_size": 2, "quiet": True}


@functools.cache
def fitted(task):
    """Returns a trained pipeline, the history, and the figures before and after: read only."""
    data, *_ = DATA[task]
    pipeline = fresh(task)
    before = kt.evaluate(pipeline, data)
    history = kt.fit(pipeline, data, validation=data, **training(task))
    return pipeline, history, before, kt.evaluate(pipeline, data)


def test_every_trainer_has_data_here():
    assert set(DATA) == set(TRAINERS)


# One of each kind of batches and figures; the others are as slow.
QUICK = {"classification", "multi_label_classification", "embedding"}


@pytest.mark.one_case
@pytest.mark.parametrize(
    "task",
    [task if task in QUICK else pytest.param(task, marks=pytest.mark.slow) for task in DATA],
)
def test_training_beats_chance(task):
    _, figure, baseline = DATA[task]
    _, history, before, after = fitted(task)
    assert len(history.epoch) == training(task)["epochs"]
    assert {"loss", f"val_{figure}"} <= set(history.history)
    if figure in LOWER_IS_BETTER:
        assert after[figure] < before[figure]
        assert after[figure] < after[baseline]
    else:
        assert after[figure] > before[figure] or after[figure] == 1
        assert after[figure] >= ENOUGH.get(task, 0.9)
    if baseline is not None:
        assert after[baseline] == before[baseline]
    if task in ("regression", "reranking"):  # whose epochs are chosen by another figure
        return
    # The best epoch's weights are those of the pipeline.
    found = history.history[f"val_{figure}"]
    best = min(found) if figure in LOWER_IS_BETTER else max(found)
    assert after[figure] == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("task", DATA)
def test_a_share_is_set_apart(task):
    trainer, pipeline = TRAINERS[task], tiny.pipeline(task)
    (examples,) = trainer.read(pipeline, {"data": DATA[task][0]}, {})
    if task == "question_answering":  # all questions are about one context, which is not divided
        with pytest.raises(ValueError, match="empty: 1 contexts"):
            trainer.split(examples, 0.25)
        return
    if task == "reranking":  # of which a query is in one part only
        train, held_out = trainer.split(examples, 1 / 3)
        assert (len(train), len(held_out)) == (16, 8)
        assert not set(train.texts) & set(held_out.texts)
        return
    train, held_out = trainer.split(examples, 0.25)
    assert (len(train), len(held_out)) == (18, 6)
    if task in ("embedding", "sparse_embedding", "late_interaction"):  # no partner is in both
        assert not set(train.partners) & set(held_out.partners)
    with pytest.raises(ValueError, match="empty"):
        trainer.split(examples, 0.001)


@pytest.mark.slow
def test_negatives_and_scores_of_embeddings():
    texts, partners = zip(*DATA["embedding"][0], strict=True)
    pipeline = fresh("embedding")
    options = {"epochs": 1, "batch_size": 8, "quiet": True, "dims": (4, 8)}
    kt.fit(pipeline, (texts, partners, ["a film"] * 24), **options)
    kt.fit(pipeline, (texts, partners, [["a film", "long !"]] * 24), chunk=3, **options)
    scores = [1.0 if i % 2 else 0.2 for i in range(24)]
    kt.fit(pipeline, {"sentence1": texts, "sentence2": partners, "score": scores}, **options)
    found = kt.evaluate(pipeline, {"text": texts, "text_b": partners, "score": scores})
    assert set(found) == {"pearson", "spearman"}
    with pytest.raises(ValueError, match="row 0: the score 5 is not from -1 to 1: divide the"):
        kt.fit(pipeline, (texts, partners, [5.0] * 24))
    with pytest.raises(ValueError, match=r"dims=\(9,\): the vectors have 8 dimensions, not 9"):
        kt.fit(pipeline, (texts, partners), dims=(9,))


@pytest.mark.slow
def test_chunks_leave_out_what_compares_no_more_texts(tmp_path):
    data = DATA["embedding"][0]
    with pytest.raises(ValueError, match="chunk.*3.*accumulate"):
        kt.fit(fresh("embedding"), data, chunk=3, accumulate=2, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_share_of_scores_that_do_not_repeat():
    texts, texts_b, _ = DATA["regression"][0]
    trainer, pipeline = TRAINERS["regression"], tiny.pipeline("regression")
    data = (texts, texts_b, [i / 7 for i in range(24)])
    (examples,) = trainer.read(pipeline, {"data": data}, {})
    train, held_out = trainer.split(examples, 0.1)
    assert (len(train), len(held_out)) == (22, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [task if task == "generation" else pytest.param(task, marks=pytest.mark.slow) for task in DATA],
)
def test_training_needs_no_validation(task):
    history = kt.fit(fresh(task), DATA[task][0], **{**training(task), "epochs": 1}).history
    assert np.isfinite(history["loss"]).all()
    assert not any(name.startswith("val_") for name in history)


@pytest.mark.slow
def test_several_labels_get_thresholds_from_validation():
    pipeline, _, _, after = fitted("multi_label_classification")
    assert pipeline.thresholds != tiny.pipeline("multi_label_classification").thresholds
    assert after["micro_f1"] == 1
    assert sorted(pipeline(f"{GOOD} .").labels) == ["joy", "surprise"]
    assert pipeline(f"{BAD} .").labels == ["anger"]


def test_indicators_are_label_sets():
    texts, sets = DATA["multi_label_classification"][0]
    labels = tiny.pipeline("multi_label_classification").labels
    rows = [[int(label in each) for label in labels] for each in sets]
    pipeline = tiny.pipeline("multi_label_classification")
    assert kt.evaluate(pipeline, (texts, rows)) == kt.evaluate(pipeline, (texts, sets))


def test_scores_are_in_the_units_of_the_answers():
    texts, texts_b, scores = DATA["regression"][0]
    pipeline = fresh("regression")
    pipeline.scale, pipeline.offset = 4.0, 1.0
    found = kt.evaluate(pipeline, (texts, texts_b, [1 + 4 * score for score in scores]))
    answers = [answer.score for answer in pipeline(texts, texts_b)]
    errors = np.array(answers) - [1 + 4 * score for score in scores]
    assert found["mean_squared_error"] == pytest.approx(np.mean(errors**2), rel=1e-4)
    assert found["mean_squared_error_of_mean"] == pytest.approx(4.0)


def test_what_is_not_trained_in_one_call():
    with pytest.raises(TypeError, match="fill_mask .*cannot be trained"):
        kt.fit(tiny.pipeline("fill_mask"), ["a film"])
    with pytest.raises(TypeError, match="Functional .*cannot be trained"):
        kt.fit(keras.Model(*[keras.Input((1,))] * 2), ["a film"])
