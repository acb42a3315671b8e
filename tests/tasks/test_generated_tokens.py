"""The signatures that tell a generator's tokens, and the count of the prompt's."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tiny
from tokenizers import Tokenizer, decoders, models, normalizers

import keras_transformers as kt
from keras_transformers.tasks.generation.examples import example_options, with_later_options
from keras_transformers.tasks.generation.prompts import in_rows
from keras_transformers.tasks.generation.tokens import as_text, token_bytes

CHAT = [{"role": "user", "content": "abc"}]
PROMPTS = ["two dogs are near the shore", "", "two", "two dogs é"]


def columns(prompts):
    """Different options for each row, among them a length of 0 and stop strings."""
    options = with_later_options(example_options(len(prompts)))
    return {name: tf.constant(value) for name, value in options.items()}


def options_of(generate, prompts):
    own = in_rows(generate.options, tf.constant([len(prompts)]))
    return {name: tf.cast(value, own[name].dtype) for name, value in columns(prompts).items()}


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: tiny.pipeline("generation"), tiny.talker])
def test_tokens_joined_are_the_text_and_their_log_probabilities_its_own(make):
    generate = make()
    prompts, options = tf.constant(PROMPTS), options_of(generate, PROMPTS)
    plain = generate.complete(prompts, **options)
    outputs = generate.complete_tokens(prompts, **options)
    for name, value in plain.items():
        np.testing.assert_array_equal(outputs[name], value)
    assert set(outputs) == {*plain, "token_bytes", "tokens", "token_log_probabilities"}
    assert outputs["num_new_tokens"].numpy()[2] == 0
    pieces, log_probs = outputs["token_bytes"].numpy(), outputs["token_log_probabilities"].numpy()
    stops = options["stop"].numpy()
    for row, count in enumerate(outputs["num_new_tokens"].numpy()):
        text = b"".join(pieces[row]).decode("utf-8", "replace")
        for stop in filter(None, stops[row]):
            text = text.split(stop.decode())[0]
        assert text == outputs["text"][row].numpy().decode()
        assert (pieces[row, count:] == b"").all()
        assert not log_probs[row, count:].any()
        assert log_probs[row].sum() == pytest.approx(
            float(outputs["log_probability"][row]), rel=1e-5
        )
    shown = np.vectorize(lambda piece: piece.decode("utf-8", "replace"), otypes=[object])(pieces)
    assert [t.decode() for t in outputs["tokens"].numpy().ravel()] == shown.ravel().tolist()


def test_the_tokens_of_an_answer_are_as_likely_as_the_model_says():
    generate = tiny.talker()
    chat = generate.chat(CHAT, max_length=5)
    conversation = {n: tf.constant([[v]]) for n, v in (("roles", "user"), ("texts", "abc"))}
    options = in_rows(generate.options | {"max_length": 5}, tf.constant([1]))
    outputs = generate.chat_tokens(**conversation, **options)
    assert outputs["text"].numpy()[0].decode() == chat.text
    ids = generate.conversation_tokenizer()(**conversation).values.numpy().tolist()
    assert outputs["num_prompt_tokens"].numpy().tolist() == [chat.num_prompt_tokens] == [len(ids)]
    vocabulary = generate.tokenizer.detokenize(tf.range(256)[:, None]).numpy().tolist()
    for piece, log_prob in zip(
        outputs["token_bytes"].numpy()[0],
        outputs["token_log_probabilities"].numpy()[0],
        strict=True,
    ):
        logits = generate.model({"token_ids": np.array([ids], "int32")})["logits"][0, -1]
        ids.append(vocabulary.index(piece))
        assert log_prob == pytest.approx(float(tf.nn.log_softmax(logits)[ids[-1]]), abs=1e-5)


def test_the_prompts_tokens_are_counted_as_the_model_reads_them():
    generate = tiny.pipeline("generation")
    counts = [answer.num_prompt_tokens for answer in generate(PROMPTS)]
    assert counts == [1 + len(ids) for ids in generate.tokenizer.tokenize(PROMPTS).to_list()]
    assert repr(generate("two")).endswith(f"num_prompt_tokens={counts[2]})")


def test_a_streams_value_counts_the_prompts_tokens_too():
    generate = tiny.pipeline("generation")

    answers = []

    def kept():
        answers.append((yield from generate.stream("two")))

    assert "".join(kept()) == generate("two").text
    assert answers == [generate("two")]


@pytest.fixture(scope="module")
def spaced():
    """A tokenizer that puts a space before texts, leaves it out after them, and spells bytes."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += ["▁", "a", "b", "▁a", "▁ab", "ab", "é"]
    merges = [("▁", "a"), ("a", "b"), ("▁", "ab")]
    model = models.BPE(
        {name: i for i, name in enumerate(names)}, merges, unk_token="<unk>", byte_fallback=True
    )
    made = Tokenizer(model)
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return kt.tokenizers.DescribedTokenizer(
        json.loads(made.to_str()), start_token="<s>", end_token="</s>"
    )


@pytest.mark.parametrize(
    "texts",
    [
        ["ab a", "b", ""],
        [" ab", "  a", "é €"],
        ["a\U0001f600b", "abab", " "],
    ],
)
def test_bytes_of_tokens_of_a_tokenizer_that_drops_a_space(spaced, texts):
    rows = spaced.tokenize(texts)
    end = tf.fill([len(texts), 1], spaced.end_token_id)
    rows = tf.concat([end[:, :0], rows, end], axis=1)  # an end token adds nothing
    pieces = token_bytes(spaced, rows.to_tensor(0), tf.cast(rows.row_lengths(), tf.int32)).numpy()
    assert [b"".join(row).decode() for row in pieces] == texts
    single = [[int(i) for i in row] for row in rows.to_list()]
    for row, ids in zip(pieces, single, strict=True):
        for k in range(len(ids) + 1):  # each prefix is the text of its tokens
            assert b"".join(row[:k]) == spaced.detokenize([ids[:k] or [2]]).numpy()[0]
    assert b"\xef\xbf\xbd" not in b"".join(pieces.ravel())
    assert as_text(tf.constant([b"\xe2\x82", b"a"])).numpy().tolist() == ["\ufffd".encode(), b"a"]
