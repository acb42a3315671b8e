"""Text as it comes: the pieces of `stream`, joined, are the answer of a plain call."""

import itertools
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_transformers.results import Generation
from keras_transformers.tasks.generation.decoding import Decoder
from keras_transformers.tasks.generation.pieces import pieces
from keras_transformers.tasks.generation.prompts import Prompts, in_rows

CHAT = [{"role": "user", "content": "abc"}]
OPTIONS = {
    "max_length": 40,
    "temperature": 1.0,
    "top_k": 1,
    "top_p": 1.0,
    "seed": 0,
    "repetition_penalty": 1.0,
    "stop": (),
}
REPLACED = "\ufffd"


def collected(generator):
    """Returns the pieces of a stream, and its value."""
    texts = []
    while True:
        try:
            texts.append(next(generator))
        except StopIteration as end:
            return texts, end.value


class Writer:
    """A model that writes the tokens it is given, one a step, and counts its steps."""

    def __init__(self, vocabulary_size):
        self.token_ids = tf.Variable([0], shape=[None])
        self.num_steps = tf.Variable(0)
        self.vocabulary_size = vocabulary_size

    def start_decoding(self, token_ids, mask):
        rows = tf.shape(token_ids)[0]
        step = self.decoding_step(tf.zeros([rows], tf.int32), 1)
        return step, token_ids[:, -1], tf.zeros([rows, 1, 0 * rows, 4])

    def decoding_step(self, num_empty, prompt_length):
        def step(token_ids, index, cache):
            self.num_steps.assign_add(1)
            logits = tf.one_hot(self.token_ids[index], self.vocabulary_size) * 50.0
            cache = tf.pad(cache, [[0, 0], [0, 0], [0, 1], [0, 0]])
            return tf.tile(logits[None], [tf.shape(token_ids)[0], 1]), cache

        return step


@pytest.fixture(scope="module")
def written():
    """Streams a given text, a byte a token: text, its options -> (pieces, answer, plain answer)."""
    tokenizer = tiny.talker().tokenizer
    model = Writer(tokenizer.vocabulary_size)
    decoder = Decoder(model, tokenizer, longest=300)
    prompts = Prompts(tokenizer, 300)
    plain = tf.function(decoder.sample, autograph=False, reduce_retracing=True)

    def stream(text, **options):
        options = OPTIONS | options
        token_ids = tokenizer.tokenize([text]).values
        model.token_ids.assign(tf.concat([token_ids, [tokenizer.end_token_id]], axis=0))
        columns = in_rows(options, tf.constant([1]))
        stop = columns.pop("stop")
        row = prompts.rows(tf.ragged.constant([[5, 6]], tf.int32), "prompt", stop, columns)
        model.num_steps.assign(0)
        answer = {name: value.numpy()[0] for name, value in plain(**row).items()}
        answer["text"] = answer["text"].decode()
        num_steps = model.num_steps.numpy()
        model.num_steps.assign(0)
        return SimpleNamespace(
            generator=decoder.stream(row),
            expected=Generation(**answer),
            steps_of_the_graph=num_steps,
            num_steps=model.num_steps,
        )

    return stream


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("你好呀世界", ()),
        ("naïve 👩‍👩‍👧 é\u0301 \U0001f600!", ()),
        ("A plain text, whose END is written", ("END",)),
        ("EEN ENDED", ("END", "ENT")),
        ("你好呀世界", ("呀世", "界")),
        ("你好呀世界", ("好呀世呢",)),
        ("\U0001f600\U0001f601\U0001f602", ("\U0001f601",)),
        ("aaab aaac", ("aaac", "c")),
        ("what begins a stop ENTER", ("ENTERED",)),
        ("an odd \ufffd and \ufffd", ()),
        ("an odd \ufffd and more", ("d \ufffd a",)),
        (b"half \xe4\xbd", ()),
        (b"broken \xff\xff\xe4 text \xf0\x9f", ("text \ufffd",)),
        ("stop first", ("stop",)),
        ("", ("a",)),
    ],
)
def test_pieces_joined_are_the_plain_answer(written, text, stop):
    stream = written(text, stop=stop)
    texts, answer = collected(stream.generator)
    assert "".join(texts) == stream.expected.text == answer.text
    assert answer == stream.expected
    assert stream.num_steps.numpy() == stream.steps_of_the_graph
    assert all(texts)
    if isinstance(text, str) and REPLACED not in text:
        assert REPLACED not in "".join(texts), "half of a character"
    assert len(texts) == len(answer.text) or stop or REPLACED in answer.text


def test_the_first_piece_comes_after_the_first_step(written):
    stream = written("one, two, three", stop=("six",))
    assert stream.num_steps.numpy() == 0
    assert next(stream.generator) == "o"
    assert stream.num_steps.numpy() == 1


def test_who_leaves_computes_no_more(written):
    for leave in (lambda generator: generator.close(), lambda generator: None):
        stream = written("one, two, three")
        for piece, _ in zip(stream.generator, range(2), strict=False):
            assert len(piece) == 1
        leave(stream.generator)
        taken = stream.num_steps.numpy()
        assert taken <= 3
        del stream.generator
        assert stream.num_steps.numpy() == taken


def test_any_stop_in_any_bytes(written):
    """Random texts of few letters, some of them of several bytes, and stops of the same letters."""
    numbers = random.Random(0)
    letters = [*"ab", "é", "世", "\U0001f600", REPLACED]
    for _ in range(25):
        text = "".join(numbers.choices(letters, k=numbers.randrange(12)))
        stop = ["".join(numbers.choices(letters, k=numbers.randrange(1, 4))) for _ in range(2)]
        stream = written(text.encode()[: numbers.randrange(50)], stop=tuple(stop))
        texts, answer = collected(stream.generator)
        assert "".join(texts) == stream.expected.text, (text, stop)
        assert answer == stream.expected, (text, stop)


def test_no_piece_is_taken_back():
    """Whatever follows, the pieces so far are the start of the whole text."""
    numbers = random.Random(1)
    for _ in range(300):
        data = bytes(numbers.choices([*"aé世😀".encode(), 0xFF], k=numbers.randrange(10)))
        texts = [data[:length].decode("utf-8", "replace") for length in range(1, len(data) + 1)]
        assert "".join(pieces(texts, ["ab", "世a"])) == data.decode("utf-8", "replace")


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 1},
        {"temperature": 1.4, "seed": 3},
        {"top_k": 5, "top_p": 0.8, "seed": 4, "repetition_penalty": 2.0},
        {"max_length": 0},
    ],
)
def test_a_models_stream_is_its_answer(options):
    generate = tiny.pipeline("generation")
    for prompt in ("two dogs", "", "你好 é", b"\xff", "z" * (generate.max_sequence_length - 3)):
        options = {"max_length": 12, **options}
        texts, answer = collected(generate.stream(prompt, **options))
        assert answer == generate(prompt, **options)
        assert "".join(texts) == answer.text
    assert answer.num_new_tokens == min(3, options["max_length"])


def test_a_conversations_stream_is_its_answer():
    generate = tiny.talker()
    longer = [{"role": "system", "content": "你好"}, *CHAT]
    for messages in (CHAT, longer, [longer]):
        texts, answer = collected(generate.stream_chat(messages, seed=1, temperature=0.8))
        assert [answer] == np.ravel([generate.chat(messages, seed=1, temperature=0.8)]).tolist()
        assert "".join(texts) == answer.text


def test_the_example_of_the_docs_prints_the_answer(capsys):
    page = (Path(__file__).parents[2] / "docs/chat.md").read_text("utf-8")
    code = page.partition("## Streaming")[2].partition("```python\n")[2].partition("```")[0]
    generate = tiny.talker()
    names = {"generate": generate}
    exec(code, names)
    answer = generate.chat(names["messages"], max_length=100)
    assert capsys.readouterr().out == answer.text


def test_a_stop_of_a_model_is_held_back():
    generate = tiny.talker()
    whole = generate.chat(CHAT).text
    for stop in (whole[3:6], whole[-1], whole[0]):
        texts, answer = collected(generate.stream_chat(CHAT, stop=stop))
        assert "".join(texts) == whole[: whole.index(stop)]
        assert answer == generate.chat(CHAT, stop=stop)
        assert answer.finished


def test_steps_of_several_rows_are_those_of_the_graph():
    generate = tiny.pipeline("generation")
    prompts = ["two dogs", "", "é", "a small dog"]
    whole = generate("é", max_length=9, top_k=1).text
    columns = {
        "prompt": tf.constant(prompts),
        "max_length": tf.constant([9, 3, 7, 0]),
        "temperature": tf.constant([1.0, 1.3, 1.0, 1.0]),
        "top_k": tf.constant([0, 9, 1, 1]),
        "top_p": tf.constant([0.9, 1.0, 1.0, 1.0]),
        "seed": tf.constant([7, 8, 9, 10], tf.int64),
        "repetition_penalty": tf.constant([2.0, 1.0, 1.0, 1.0]),
        "stop": tf.constant([["", ""], ["", ""], [whole[2:4], "zzz"], ["", ""]]),
    }
    expected = {name: value.numpy() for name, value in generate._graph(**columns).items()}
    rows = generate._traced(generate._rows_of_prompts, ("prompt",))(**columns)
    steps = list(generate._decoder.steps(rows))
    lengths = expected["num_new_tokens"]
    assert len(steps) == lengths.max()
    assert len(set(lengths.tolist())) > 2
    token_ids = np.stack([step.token_ids for step in steps], axis=1)
    texts = generate.tokenizer.detokenize(token_ids).numpy()
    for row, text in enumerate(expected["text"]):
        assert texts[row].decode("utf-8", "replace").startswith(text.decode()), row
        assert (token_ids[row, lengths[row] :] == generate.tokenizer.pad_token_id).all()
    log_probs = np.cumsum([step.log_probs for step in steps], axis=0)[-1]
    np.testing.assert_allclose(log_probs, expected["log_probability"], rtol=1e-5)
    np.testing.assert_array_equal(steps[-1].finished, expected["finished"])


def test_padding_is_no_text_even_if_the_tokenizer_pads_with_a_letter():
    """A row that ends before another one is padded."""
    letters = tf.constant([*"abcde"])
    tokenizer = SimpleNamespace(
        vocabulary_size=5,
        end_token_id=None,
        pad_token_id=1,
        detokenize=lambda token_ids: tf.strings.reduce_join(tf.gather(letters, token_ids), axis=-1),
    )
    model = Writer(5)
    model.token_ids.assign([2, 3, 2, 4])
    rows = {"token_ids": tf.constant([[0], [0]]), "num_tokens": tf.constant([1, 1])}
    rows |= in_rows(OPTIONS, tf.constant([2])) | {"max_length": tf.constant([2, 4])}
    answer = Decoder(model, tokenizer, longest=10).sample(**rows)
    assert answer["text"].numpy().tolist() == [b"cd", b"cdce"]


def test_two_streams_at_once_do_not_mix():
    generate = tiny.pipeline("generation")
    options = {"max_length": 9, "temperature": 1.0}
    first, second = generate.stream("two", **options), generate.stream("a", seed=3, **options)
    turns = list(itertools.zip_longest(first, second, fillvalue=""))
    assert "".join(piece for piece, _ in turns) == generate("two", **options).text
    assert "".join(piece for _, piece in turns) == generate("a", seed=3, **options).text


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (lambda generate: generate.stream("abc", temperature=0), "temperature=0.0: .*above 0"),
        (lambda generate: generate.stream("abc", max_new_tokens=3), "options max_new_tokens: use"),
        (lambda generate: generate.stream(["abc", "abc"]), "prompt"),
        (lambda generate: generate.stream(None), "prompt"),
        (lambda generate: generate.stream("z" * 30), "prompt is longer than the 24 positions"),
        (lambda _: tiny.talker().stream_chat([CHAT, CHAT]), "2 conversations: .*answers one"),
        (lambda _: tiny.talker().stream_chat([]), "0 conversations: .*answers one"),
        (lambda _: tiny.talker().stream_chat("Hi"), "conversation 0.*expected"),
        (
            lambda _: tiny.talker().stream_chat([{"role": "wizard", "content": "a"}]),
            "roles must be one of.*wizard",
        ),
        (lambda generate: generate.stream_chat(CHAT), "no chat template"),
    ],
)
def test_what_is_wrong_is_refused_before_the_first_piece(stream, message):
    with pytest.raises(ValueError, match=message):
        stream(tiny.pipeline("generation"))


def test_other_options_use_the_same_graphs():
    generate = tiny.pipeline("generation")
    list(generate.stream("two", max_length=1))
    other = generate.with_options(seed=9, temperature=0.5)
    assert other._decoder is generate._decoder
    assert other._graphs is generate._graphs
    assert generate.with_options(also_end_token_ids=[3])._decoder is not generate._decoder
