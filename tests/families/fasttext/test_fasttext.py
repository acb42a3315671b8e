import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import compile_toy

import keras_transformers as kt
from keras_transformers.data.text import Examples, TextBatches
from keras_transformers.families.fasttext.model import fasttext, hierarchical_classifier
from keras_transformers.heads import classifier
from keras_transformers.pipelines import TextClassifier
from keras_transformers.tokenizers import NgramTokenizer
from keras_transformers.training.losses import TokenCrossentropy

LABELS = ["bad", "good", "so so"]
TEXTS = Examples(
    ["not bad at all", "good film", "not good", "bad film", "so so", "good or bad"] * 2,
    labels=["good", "good", "bad", "bad", "so so", "so so"] * 2,
)


@pytest.fixture(scope="module")
def tokenizer():
    return NgramTokenizer.train(TEXTS.texts, num_buckets=1000, word_ngrams=2)


@pytest.mark.parametrize(
    ("num_words", "num_buckets", "dim", "num_classes"), [(30, 100, 10, 2), (7, 0, 3, 5)]
)
def test_counts_with_both_heads(num_words, num_buckets, dim, num_classes):
    table = (num_words + num_buckets) * dim
    encoder = fasttext(vocabulary_size=num_words + num_buckets, embedding_dim=dim)
    assert encoder.count_params() == table
    flat = classifier(encoder, num_classes, dropout=0.0)
    assert flat.count_params() == table + dim * num_classes + num_classes  # with biases
    tree = hierarchical_classifier(encoder, [1] * num_classes)
    assert tree.count_params() == table + dim * (num_classes - 1)


def test_the_output_is_the_mean_of_the_real_rows_alone():
    encoder = fasttext(vocabulary_size=6, embedding_dim=2)
    (table,) = encoder.get_weights()
    assert np.abs(table).max() <= 0.5  # 1 / embedding_dim
    inputs = {
        "token_ids": np.array([[5, 5, 2, 0], [1, 0, 0, 0], [0, 0, 0, 0]]),
        "padding_mask": np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], bool),
    }
    pooled = encoder(inputs)["pooled_output"]
    expected = [(2 * table[5] + table[2] + table[0]) / 4, table[1], [0, 0]]
    np.testing.assert_allclose(pooled, expected, atol=1e-6)
    swapped = {name: value[:, ::-1] for name, value in inputs.items()}
    np.testing.assert_allclose(encoder(swapped)["pooled_output"], pooled, atol=1e-6)


def trained(model, tokenizer, loss):
    """Trains 60 times on all texts: in 10 epochs, as each takes longer than its steps."""
    inputs = tokenizer(TEXTS.texts * 6, max_sequence_length=64)
    targets = {"logits": np.array([LABELS.index(label) for label in TEXTS.labels * 6])}
    compile_toy(
        model, keras.optimizers.SGD(2.0), {"logits": loss}, metrics={"logits": ["accuracy"]}
    )
    return model.fit(inputs, targets, batch_size=6, epochs=10, verbose=0).history


def test_batches_of_the_classification_data(tokenizer):
    encoder = fasttext(vocabulary_size=tokenizer.vocabulary_size, embedding_dim=2)
    model = classifier(encoder, 3, dropout=0.0)
    classify = TextClassifier(model, tokenizer, LABELS, max_sequence_length=64)
    batches = TextBatches(TEXTS, classify, batch_size=5)
    compile_toy(model, keras.optimizers.SGD(1.0), {"logits": TokenCrossentropy()})
    history = model.fit(
        batches.dataset(), steps_per_epoch=len(batches), shuffle=False, verbose=0
    ).history
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize("head", [pytest.param("flat", marks=pytest.mark.slow), "hierarchical"])
def test_it_learns_what_words_alone_do_not_tell(tokenizer, head):
    """«not bad at all», «good or bad»: pairs of words decide."""
    keras.utils.set_random_seed(1)
    encoder = fasttext(vocabulary_size=tokenizer.vocabulary_size, embedding_dim=10)
    model = (
        classifier(encoder, 3, dropout=0.0)
        if head == "flat"
        else hierarchical_classifier(encoder, [8, 8, 8])
    )
    history = trained(model, tokenizer, TokenCrossentropy())
    assert history["accuracy"][-1] == 1.0
    assert history["loss"][-1] < 0.1 < 0.9 < history["loss"][0]
    logits = model.predict(tokenizer(["not bad at all", ""], max_sequence_length=64), verbose=0)
    assert LABELS[logits["logits"][0].argmax()] == "good"
    if head == "hierarchical":
        np.testing.assert_allclose(np.exp(logits["logits"]).sum(-1), [1, 1], atol=1e-5)


@pytest.mark.slow
def test_with_label_smoothing_it_stays_less_sure(tokenizer):
    sure = {}
    for label_smoothing in (0.0, 0.3):
        keras.utils.set_random_seed(1)
        encoder = fasttext(vocabulary_size=tokenizer.vocabulary_size, embedding_dim=10)
        model = classifier(encoder, 3, dropout=0.0)
        trained(model, tokenizer, TokenCrossentropy(label_smoothing=label_smoothing))
        logits = model(tokenizer(TEXTS.texts[:6], max_sequence_length=64))["logits"]
        sure[label_smoothing] = keras.ops.softmax(logits).numpy().max(-1).mean()
    assert sure[0.0] > 0.9
    assert sure[0.3] == pytest.approx(0.8, abs=0.03)  # 1 - e + e / 3


def test_a_step_of_training_moves_the_rows_of_its_texts_alone(tokenizer):
    encoder = fasttext(vocabulary_size=tokenizer.vocabulary_size, embedding_dim=4)
    model = classifier(encoder, 3, dropout=0.0)
    before = encoder.get_weights()[0].copy()
    compile_toy(model, keras.optimizers.SGD(1.0), {"logits": TokenCrossentropy()})
    inputs = tokenizer(["good film", "so"], max_sequence_length=64)
    model.train_on_batch(inputs, {"logits": np.array([1, 2])})
    moved = (encoder.get_weights()[0] != before).any(axis=1)
    is_real = inputs["padding_mask"].numpy()
    expected = set(inputs["token_ids"].numpy()[is_real])
    assert set(np.flatnonzero(moved)) == expected


def test_a_step_is_fasttexts():
    """One text, batches of one, no biases: Joulin's gradient, computed by hand."""
    encoder = fasttext(vocabulary_size=4, embedding_dim=2)
    model = classifier(encoder, 2, dropout=0.0)
    generator = np.random.default_rng(0)
    table = generator.normal(size=(4, 2)).astype("float32")
    kernel = generator.normal(size=(2, 2)).astype("float32")
    model.set_weights([table, kernel, np.zeros(2, "float32")])
    compile_toy(model, keras.optimizers.SGD(0.1), {"logits": TokenCrossentropy()})
    inputs = {"token_ids": np.array([[3, 1, 3]]), "padding_mask": np.ones((1, 3), bool)}
    model.train_on_batch(inputs, {"logits": np.array([1])})
    hidden = (2 * table[3] + table[1]) / 3
    exps = np.exp(hidden @ kernel)
    error = np.array([0, 1]) - exps / exps.sum()
    step = 0.1 * kernel @ error / 3  # of each of the three ids
    expected = table.copy()
    expected[3] += 2 * step
    expected[1] += step
    np.testing.assert_allclose(encoder.get_weights()[0], expected, rtol=1e-4)
    kernel_after = model.get_layer("logits").kernel
    np.testing.assert_allclose(kernel_after, kernel + 0.1 * np.outer(hidden, error), rtol=1e-4)


@pytest.mark.parametrize("head", ["flat", "hierarchical"])
def test_saved_and_loaded(tokenizer, head, tmp_path):
    encoder = fasttext(vocabulary_size=tokenizer.vocabulary_size, embedding_dim=4)
    model = (
        classifier(encoder, 3) if head == "flat" else hierarchical_classifier(encoder, [3, 2, 9])
    )
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    inputs = tokenizer(["good film", ""], max_sequence_length=64)
    np.testing.assert_array_equal(again(inputs)["logits"], model(inputs)["logits"])


@pytest.mark.slow
def test_on_jax_it_learns_without_tensorflow(on_jax):
    on_jax("""
import keras, numpy as np
from keras_transformers.families.fasttext.model import fasttext, hierarchical_classifier
from keras_transformers.training.losses import TokenCrossentropy
model = hierarchical_classifier(fasttext(vocabulary_size=9, embedding_dim=4), [2, 1, 1])
model.compile(keras.optimizers.SGD(5.0), loss={"logits": TokenCrossentropy()})
inputs = {"token_ids": np.array([[1, 2], [3, 0], [4, 5]]), "padding_mask": np.ones((3, 2), bool)}
losses = model.fit(inputs, {"logits": np.arange(3)}, epochs=60, verbose=0).history["loss"]
assert losses[-1] < 0.2 < losses[0], losses
""")


def test_under_a_bfloat16_policy_the_table_is_not_cast():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        encoder = fasttext(vocabulary_size=10, embedding_dim=2)
    finally:
        keras.config.set_dtype_policy("float32")
    inputs = {"token_ids": tf.constant([[1, 2]]), "padding_mask": tf.constant([[True, True]])}
    graph = tf.function(encoder).get_concrete_function(inputs).graph
    assert "ReadVariableOp" not in {operation.type for operation in graph.get_operations()}
    assert encoder(inputs)["pooled_output"].dtype == tf.float32


def test_sizes_that_cannot_be():
    for arguments in ({"vocabulary_size": 0}, {"embedding_dim": 0}):
        with pytest.raises(ValueError, match="expected at least 1"):
            fasttext(**({"vocabulary_size": 5, "embedding_dim": 2} | arguments))
    with pytest.raises(ValueError, match="class counts"):
        hierarchical_classifier(fasttext(vocabulary_size=5, embedding_dim=2), [3])
    small = kt.create_model("fasttext_base", vocabulary_size=9, embedding_dim=2)
    assert small.count_params() == 18
