import numpy as np
import pytest
import tensorflow as tf
from answer_checks import same_answers
from pretrained_models import lively_chooser, lively_classifier

from keras_transformers.inspection import attention
from keras_transformers.pipelines import MultipleChoice, TextClassifier
from keras_transformers.results import Choice

TEXTS = ["a film", "good", "", "very bad"]
CHOICES = [["good", "bad films", "!"], ["a film"], ["long", "very long . !"], []]


@pytest.fixture(scope="module")
def choose(pipelines):
    return pipelines("multiple_choice")


def expected_probabilities(model, tokenizer, text, choices, length=16):
    """The softmax of the scores of one pair after the other."""
    scores = []
    for choice in choices:
        tokens = tokenizer([text], [choice], max_sequence_length=length)
        logits = model({name: value[None] for name, value in tokens.items()})["logits"]
        scores.append(float(logits[0, 0]))
    return tf.nn.softmax(scores).numpy()


def test_the_probabilities_are_those_of_pairs(choose, tokenizer):
    answers = choose(TEXTS, CHOICES)
    assert {type(answer) for answer in answers} == {Choice}
    for text, choices, answer in zip(TEXTS[:3], CHOICES, answers, strict=False):
        expected = expected_probabilities(choose.model, tokenizer, text, choices)
        np.testing.assert_allclose(answer.probabilities, expected, atol=1e-5)
        assert answer.choice_index == expected.argmax()
        assert answer.choice == choices[answer.choice_index]
    assert np.ptp(answers[0].probabilities) > 0.01


def test_rows_have_their_own_number_of_choices(choose):
    together = choose(TEXTS, CHOICES)
    alone = [choose(text, choices) for text, choices in zip(TEXTS, CHOICES, strict=True)]
    same_answers(alone, together)
    assert [len(answer.probabilities) for answer in together] == [3, 1, 2, 0]
    assert together[3] == Choice("", [], -1)
    assert choose([], []) == []


def test_empty_strings_are_no_choices(choose):
    answer = choose("a film", ["", "bad", "", "good", ""])
    without = choose("a film", ["bad", "good"])
    assert (answer.choice, answer.choice_index) == (without.choice, 1 + 2 * without.choice_index)
    np.testing.assert_allclose(answer.probabilities[1::2], without.probabilities, atol=1e-5)
    assert answer.probabilities[::2] == [0.0, 0.0]
    assert choose("a film", [" "]).choice_index == 0  # without tokens, but a choice


def test_long_pairs_are_trimmed_to_the_length_asked_for(tokenizer):
    choose = MultipleChoice(lively_chooser(), tokenizer, max_sequence_length=7)
    text, choices = "a film " * 9, ["good " * 9, "bad"]
    expected = expected_probabilities(choose.model, tokenizer, text, choices, length=7)
    np.testing.assert_allclose(choose(text, choices).probabilities, expected, atol=1e-5)


def test_attention_shows_the_first_choice(choose):
    (found,) = attention(choose, "a film", ["", "bad !", "good"]).values()
    assert found.keys == ["[CLS]", "a", "film", "[SEP]", "bad", "!", "[SEP]"]
    assert found.probabilities.shape == (1, 2, 7, 7)
    with pytest.raises(ValueError, match="no choice to show"):
        attention(choose, "a film", [""])


def strings(*texts):
    return tf.constant(texts, tf.string)


def test_signature(run):
    name = "multiple_choice"
    choices = strings(["good", ""], ["", ""], ["", b"\xff"])
    answer = run(name, text=strings("a film", "", b"\xff"), choices=choices)
    assert {key: (value.shape, value.dtype) for key, value in answer.items()} == {
        "choice": ((3,), object),
        "choice_index": ((3,), np.int32),
        "num_choices": ((3,), np.int32),
        "probabilities": ((3, 2), np.float32),
    }
    assert answer["choice"].tolist() == [b"good", b"", b"\xff"]
    assert answer["choice_index"].tolist() == [0, -1, 1]
    assert answer["num_choices"].tolist() == [1, 0, 2]
    np.testing.assert_allclose(answer["probabilities"], [[1, 0], [0, 0], [0, 1]])
    for shape in ((0, 3), (0, 0), (2, 0)):
        empty = run(name, text=tf.fill(shape[:1], "a"), choices=tf.fill(shape, "a"))
        assert empty["probabilities"].shape == shape
        assert empty["choice"].tolist() == [b""] * shape[0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="text and choices"):
        run(name, text=strings("a", "b"), choices=strings(["c"]))


def test_tokens_in_place_of_texts(run, choose):
    choices = strings(["good", "bad films"], ["!", ""])
    tokens = choose.encode(strings("a", "good"), choices)
    assert tokens["token_ids"].shape == (2, 2, 7)
    text = run("multiple_choice", text=strings("a", "good"), choices=choices)
    answer = run("multiple_choice", "tokens", **tokens)
    assert set(answer) == {"probabilities", "choice_index", "num_choices"}
    for key, value in answer.items():
        np.testing.assert_allclose(value, text[key], atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="token_ids.*14 tokens"):
        run("multiple_choice", "tokens", **tokens | {"token_ids": tokens["token_ids"] + 14})
    longer = {key: tf.repeat(value, 4, axis=2) for key, value in tokens.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match="16 positions"):
        run("multiple_choice", "tokens", **longer)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("a",), "MultipleChoice takes text, choices, not 1 arguments"),
        (("a", "b"), r"choices .*list .*choices\[0\] is 'b'"),
        ((["a"], ["b"]), "choices .*list of strings"),
        (("a", ["b", 3]), "choices .*list of strings"),
        ((["a"], [["b"], ["c"]]), "choices, not {'text': 1, 'choices': 2}"),
    ],
)
def test_what_is_not_a_text_with_choices(choose, given, text):
    with pytest.raises(ValueError, match=text):
        choose(*given)


def test_heads_of_other_tasks(choose, tokenizer):
    with pytest.raises(ValueError, match="'bert_classifier' must take .* choices, length.*: put"):
        MultipleChoice(lively_classifier(), tokenizer)
    with pytest.raises(ValueError, match="2 labels .* for the None classes"):
        TextClassifier(choose.model, tokenizer, ["a", "b"])
