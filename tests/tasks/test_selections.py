"""A choice between texts: exact probabilities, and nothing else has any."""

import itertools
import re

import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_transformers.dependencies import graph_errors
from keras_transformers.results import Selection

CHAT = [{"role": "user", "content": "abc"}]
LONGER = [{"role": "system", "content": "Hi"}, *CHAT]
# One begins another, one has other tokens than its letters, one is longer than the rest.
CHOICES = ["two", "two dogs", "a", "a small dog runs", " a", "é"]


def in_order(*parts):
    """A pattern of a message that has these parts."""
    return "(?s)" + ".*".join(map(re.escape, parts))


def expected(generate, prompt_ids, choices):
    """What the model itself says of each choice's tokens and of the end after them, as shares."""
    tokenizer = generate.tokenizer
    written = [ids.numpy() for ids in tokenizer.tokenize(choices)]
    width = len(prompt_ids) + max(map(len, written))
    rows = np.zeros((len(choices), width), "int32")
    for row, ids in zip(rows, written, strict=True):
        row[: len(prompt_ids) + len(ids)] = [*prompt_ids, *ids]
    logits = generate.model({"token_ids": rows}, training=False)["logits"]
    logits = logits[:, len(prompt_ids) - 1 :, : tokenizer.vocabulary_size]
    ends = [tokenizer.end_token_id, *generate.also_end_token_ids]
    scores = []
    for ids, log_probs in zip(written, tf.nn.log_softmax(logits).numpy(), strict=True):
        end = np.logaddexp.reduce(log_probs[len(ids), ends].astype(float))
        scores.append(log_probs[np.arange(len(ids)), ids].sum() + end)
    weights = np.exp(np.array(scores) - max(scores))
    return weights / weights.sum()


@pytest.fixture(scope="module")
def generate():
    return tiny.pipeline("generation")


@pytest.mark.one_case
@pytest.mark.parametrize("prompt", ["two dogs are", "", "zzz"])
def test_probabilities_are_the_models_own_token_by_token(generate, prompt):
    answer = generate.choose(prompt, CHOICES)
    prompt_ids = generate.prompt_ids(prompt).numpy()[0]
    np.testing.assert_allclose(
        answer.probabilities, expected(generate, prompt_ids, CHOICES), rtol=1e-3, atol=1e-7
    )
    assert sum(answer.probabilities) == pytest.approx(1, abs=1e-6)
    best = int(np.argmax(answer.probabilities))
    assert (answer.text, answer.probability) == (CHOICES[best], answer.probabilities[best])
    assert answer.num_prompt_tokens == len(prompt_ids)
    (token_ids,) = generate.tokenizer.tokenize([answer.text]).to_list()
    assert answer.num_new_tokens == len(token_ids) + 1


@pytest.mark.slow
def test_every_end_token_ends_a_choice(generate):
    more = generate.with_options(also_end_token_ids=[100, 200, 30])
    answer = more.choose("two dogs are", CHOICES)
    prompt_ids = more.prompt_ids("two dogs are").numpy()[0]
    np.testing.assert_allclose(
        answer.probabilities, expected(more, prompt_ids, CHOICES), rtol=1e-3, atol=1e-7
    )
    assert answer != generate.choose("two dogs are", CHOICES)


def test_each_row_has_its_own_choices_and_no_row_changes_another(generate):
    prompts = ["two", "two dogs are near", ""]
    lists = [CHOICES[:2], ["a"], CHOICES]
    together = generate.choose(prompts, lists)
    for prompt, choices, answer in zip(prompts, lists, together, strict=True):
        alone = generate.choose(prompt, choices)
        assert answer.text == alone.text
        np.testing.assert_allclose(answer.probabilities, alone.probabilities, rtol=1e-4)
    assert together[1].probabilities == [1.0]
    same = generate.choose(prompts, CHOICES)
    assert [answer.text for answer in same] == [generate.choose(p, CHOICES).text for p in prompts]
    assert generate.choose([], CHOICES) == generate.choose([], []) == []
    turned = generate.choose(prompts[0], CHOICES[::-1])
    np.testing.assert_allclose(turned.probabilities[::-1], same[0].probabilities, rtol=1e-4)


def test_more_choices_than_are_computed_at_once(generate):
    letters = "abcdefghijklmnopqrstuvwxyz"
    choices = [*letters, *(a + b for a, b in itertools.product(letters[:5], letters[:5]))]
    answer = generate.choose(["two", "dogs"], choices)[1]
    ids = generate.prompt_ids("dogs").numpy()[0]
    np.testing.assert_allclose(
        answer.probabilities, expected(generate, ids, choices), rtol=1e-3, atol=1e-7
    )


@pytest.mark.slow
def test_answers_to_conversations():
    generate = tiny.talker()
    choices = ["Paris", "Par", "Rome"]
    answers = generate.choose_chat([CHAT, LONGER], choices)
    tokenize = generate.conversation_tokenizer()
    for messages, answer in zip([CHAT, LONGER], answers, strict=True):
        columns = [[[message[name] for message in messages]] for name in ("role", "content")]
        ids = tokenize(*map(tf.constant, columns)).values.numpy()
        np.testing.assert_allclose(
            answer.probabilities, expected(generate, ids, choices), rtol=1e-3, atol=1e-7
        )
        assert answer.num_prompt_tokens == len(ids)
        assert isinstance(answer, Selection)
        alone = generate.choose_chat(messages, choices)
        np.testing.assert_allclose(alone.probabilities, answer.probabilities, rtol=1e-4)
    assert generate.choose_chat([], choices) == []
    with pytest.raises(ValueError, match="no chat template"):
        tiny.pipeline("generation").choose_chat(CHAT, choices)


@pytest.mark.parametrize(
    ("choices", "parts"),
    [
        ([], ["choices", "empty", "at least one"]),
        ([["a"], []], ["choices[1]", "empty"]),
        ([["a"], ["b", ""]], ["choices[1][1]", "''"]),
        ([["a"], ["b", "c", "b"]], ["choices[1][2]", "'b'", "choices[1][0]", "once"]),
        (["a", "b", "a"], ["choices[2]", "'a'", "choices[0]"]),
        ([["a"]], ["1 list", "2 rows"]),
        ("ab", ["choices", "list", "'ab'"]),
        (5, ["choices", "5"]),
        (None, ["choices", "None"]),
        (["a", 5], ["choices", "list"]),
        ([["a"], ["b", 5]], ["choices[1][1]", "5"]),
        ({"a": 1}, ["choices", "dict"]),
        (["a", "x" * 30], ["24 positions", "shorten", "x" * 30, "row 0"]),
        ([["a"], ["b", "zz" * 12]], ["24 positions", "zz" * 12, "row 1"]),
        (["a", b"\xff"], ["exactly", "row 0"]),
    ],
)
def test_what_is_no_choice_is_refused_with_its_place(generate, choices, parts):
    with pytest.raises(ValueError, match=in_order(*parts)):
        generate.choose(["two", "dogs"], choices)


def test_the_graph_refuses_what_a_client_may_send(generate):
    prompts = tf.constant(["two", "dogs"])
    for choices, parts in (
        ([["a", ""], ["", ""]], ["at least one", "row 1"]),
        ([["a", "b"], ["b", "b"]], ["once", "b", "row 1"]),
        ([["a"]], ["row", "each prompt"]),
    ):
        with pytest.raises(ValueError, match=in_order(*parts)), graph_errors.as_value_errors():
            generate.choose_completion(prompts, tf.constant(choices))
    gaps = generate.choose_completion(prompts, tf.constant([["", "two", ""], ["a", "", "two"]]))
    assert gaps["probabilities"].numpy()[0].tolist() == [0, 1, 0]
    assert gaps["probabilities"].numpy()[1, 1] == 0
    dogs = generate.choose("dogs", ["a", "two"]).probabilities
    np.testing.assert_allclose(gaps["probabilities"][1].numpy()[[0, 2]], dogs, rtol=1e-4)


def test_names_of_special_tokens_are_no_texts_that_it_writes():
    with pytest.raises(ValueError, match=in_order("exactly", "<|im_end|>")):
        tiny.talker().choose_chat(CHAT, ["yes", "<|im_end|>"])
