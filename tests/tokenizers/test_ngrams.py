import functools
import importlib.util
import json
import runpy
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformers.tokenizers import NgramTokenizer

GOLDEN = Path(__file__).parents[1] / "golden"
FROZEN = json.loads((GOLDEN / "fasttext.json").read_text("utf-8"))
MAKE = runpy.run_path(str(GOLDEN / "make_fasttext.py"))
WORDS = ["</s>", "good", "film", "ß"]
ALL = {"num_buckets": 1009, "word_ngrams": 3, "min_characters": 1, "max_characters": 4}


def tokenizer_of(setting):
    word_ngrams, min_characters, max_characters, num_buckets = setting
    return NgramTokenizer(
        FROZEN["words"],
        num_buckets=num_buckets,
        word_ngrams=word_ngrams,
        min_characters=min_characters,
        max_characters=max_characters,
    )


def fnv1a(data: bytes) -> int:
    """The hash of fastText's dictionary.cc, byte by byte."""
    hashed = 2166136261
    for byte in data:
        hashed ^= byte if byte < 0x80 else 0xFFFFFF00 | byte
        hashed = hashed * 16777619 % 2**32
    return hashed


def bag(tokenizer: NgramTokenizer, text: bytes) -> list[int]:
    """The ids of a text in fastText's order, in plain Python."""
    for blank in b"\t\n\v\f\r\0":
        text = text.replace(bytes([blank]), b" ")
    words = [*(word for word in text.split(b" ") if word), b"</s>"]
    places = {word.encode(): i for i, word in enumerate(tokenizer.vocabulary)}
    base, buckets = tokenizer.num_words, tokenizer.num_buckets
    ids = []
    for word in words:
        if word in places:
            ids.append(places[word])
        if word == b"</s>" or not tokenizer.max_characters:
            continue
        marked, characters = b"<" + word + b">", []
        for byte in marked:
            if byte & 0xC0 == 0x80:
                characters[-1] += bytes([byte])
            else:
                characters.append(bytes([byte]))
        for i in range(len(characters)):
            for n in range(max(1, tokenizer.min_characters), tokenizer.max_characters + 1):
                is_mark = n == 1 and i in (0, len(characters) - 1)
                if i + n <= len(characters) and not is_mark:
                    ids.append(base + fnv1a(b"".join(characters[i : i + n])) % buckets)
    hashes = [h - 2**32 if h >= 2**31 else h for h in map(fnv1a, words)]
    for i in range(len(hashes)):
        joined = hashes[i] % 2**64
        for j in range(i + 1, min(i + tokenizer.word_ngrams, len(hashes))):
            joined = (joined * 116049371 + hashes[j]) % 2**64
            ids.append(base + joined % buckets)
    return ids


@pytest.mark.parametrize("setting", MAKE["SETTINGS"], ids=str)
def test_ids_equal_the_reference_package(setting):
    tokenizer = tokenizer_of(setting)
    ids = tokenizer.tokenize(tf.constant(MAKE["TEXTS"]))
    frozen = FROZEN["ids"][MAKE["SETTINGS"].index(setting)]
    for text, found, expected in zip(MAKE["TEXTS"], ids.to_list(), frozen, strict=True):
        assert sorted(found) == expected, text
    assert ids.dtype == tf.int32


@pytest.mark.reference
def test_the_golden_file_is_what_the_package_says():
    if not importlib.util.find_spec("fasttext"):
        pytest.skip("needs the package: pip install fasttext-wheel")
    assert MAKE["golden"]() == FROZEN


@functools.cache
def in_graph():
    """A tokenizer, and its ids and lengths from a graph without static shapes."""
    tokenizer = NgramTokenizer(WORDS, **ALL)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
    def ids_and_lengths(text):
        return tokenizer.tokenize(text), tokenizer.lengths(text)

    return tokenizer, ids_and_lengths


def test_each_id_has_the_span_of_its_words():
    tokenizer = NgramTokenizer(WORDS, num_buckets=50, word_ngrams=3, max_characters=2)
    texts = [b"good film", b"", b"  a\tfilm\x00\xff \n", "ß".encode()]
    columns = [side.to_list() for side in tokenizer.tokenize_with_offsets(tf.constant(texts))]
    assert columns[0] == tokenizer.tokenize(tf.constant(texts)).to_list()
    parts = [
        [text[start:end] for start, end in zip(*spans, strict=True)]
        for text, *spans in zip(texts, *columns[1:], strict=True)
    ]
    # A word of n characters has n of one and n + 1 of two, of which its marks are parts.
    good, film = [b"good"] * 10, [b"film"] * 10
    ends = [b"", b"good film", b"good film", b"film"]  # "</s>", then words 1-2, 1-3, 2-3
    assert parts[0] == [*good, *film, *ends]
    assert parts[1] == [b""]
    blank = [b"a\tfilm", b"a\tfilm\x00\xff", b"film\x00\xff", b"film\x00\xff \n", b"\xff \n"]
    assert parts[2] == [*[b"a"] * 3, *film, *[b"\xff"] * 3, b"", *blank]
    assert parts[3] == [*["ß".encode()] * 4, b"", "ß".encode()]
    nothing = tokenizer.tokenize_with_offsets(tf.constant([], tf.string))
    assert [side.to_list() for side in nothing] == [[], [], []]


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), max_size=4))
def test_any_bytes_give_what_plain_python_gives_in_the_same_order(texts):
    tokenizer, ids_and_lengths = in_graph()
    ids, lengths = ids_and_lengths(tf.constant(texts, tf.string, shape=[len(texts)]))
    expected = [bag(tokenizer, text) for text in texts]
    assert ids.to_list() == expected
    assert lengths.numpy().tolist() == list(map(len, expected))


@pytest.mark.parametrize("num_buckets", [2_000_000, 2**31 - 5])
def test_as_many_buckets_as_models_have(num_buckets):
    changed = ALL | {"num_buckets": num_buckets}
    tokenizer = NgramTokenizer(WORDS, **changed)
    text = "good bad film 😂 größe".encode()
    assert tokenizer.tokenize(tf.constant([text])).to_list() == [bag(tokenizer, text)]


@pytest.mark.parametrize("word_ngrams", [1, 2])
@pytest.mark.parametrize("characters", [(0, 0), (1, 1), (2, 5)])
def test_lengths_are_those_before_trimming(word_ngrams, characters):
    tokenizer = NgramTokenizer(
        WORDS,
        num_buckets=50,
        word_ngrams=word_ngrams,
        min_characters=characters[0],
        max_characters=characters[1],
    )
    texts = tf.constant(["good film", "", "unknown words </s> ß", b"\x80\x80 a\xff"])
    found = tokenizer.lengths(texts)
    assert found.dtype == tf.int32
    assert found.numpy().tolist() == tokenizer.tokenize(texts).row_lengths().numpy().tolist()


def test_packed_trimmed_and_padded():
    tokenizer = NgramTokenizer(WORDS, num_buckets=100, word_ngrams=2)
    texts = tf.constant(["good film film", "good"])
    (first, second) = tokenizer.tokenize(texts).to_list()
    assert first[:4] == [1, 2, 2, 0]
    assert len(first) == 7
    inputs = tokenizer(texts, max_sequence_length=9)
    assert inputs["token_ids"].numpy().tolist() == [first, second + [0] * 4]
    assert inputs["padding_mask"].numpy().tolist() == [[True] * 7, [True] * 3 + [False] * 4]
    trimmed = tokenizer(texts, max_sequence_length=3)
    assert trimmed["token_ids"].numpy().tolist() == [first[:3], second]
    wide = tokenizer(texts, max_sequence_length=9, pad_to_max_length=True)
    assert wide["token_ids"].shape == wide["padding_mask"].shape == (2, 9)
    assert {name: value.dtype for name, value in inputs.items()} == {
        "token_ids": tf.int32,
        "padding_mask": tf.bool,
    }


def test_an_empty_text_is_its_end_and_a_bag_may_have_nothing():
    texts = tf.constant(["", " \n\t"])
    inputs = NgramTokenizer(WORDS, **ALL)(texts, max_sequence_length=8)
    assert inputs["token_ids"].numpy().tolist() == [[0], [0]]
    assert inputs["padding_mask"].numpy().tolist() == [[True], [True]]
    inputs = NgramTokenizer(["good"], num_buckets=5, word_ngrams=2)(texts, max_sequence_length=8)
    assert inputs["token_ids"].numpy().tolist() == [[0], [0]]
    assert inputs["padding_mask"].numpy().tolist() == [[False], [False]]
    no_texts = NgramTokenizer(WORDS, **ALL)(tf.constant([], tf.string), max_sequence_length=8)
    assert no_texts["token_ids"].shape == (0, 1)


def test_where_it_differs_from_fasttext():
    tokenizer = NgramTokenizer([*WORDS, "__label__x"], num_buckets=100)
    ids = tokenizer.tokenize(tf.constant(["good </s> film __label__x", "good\nfilm"]))
    assert ids.to_list() == [[1, 0, 2, 4, 0], [1, 2, 0]]
    long = NgramTokenizer(["a" * 1000], **ALL).tokenize(tf.constant(["a" * 1000, "a" * 5000]))
    assert long.to_list()[0] == long.to_list()[1]


@pytest.mark.parametrize("texts", [["good film 😂", "bad"], [""], []])
def test_ids_are_the_same_without_a_graph(texts):
    tokenizer, ids_and_lengths = in_graph()
    strings = tf.constant(texts, tf.string)
    assert ids_and_lengths(strings)[0].to_list() == tokenizer.tokenize(strings).to_list()


def test_a_dictionary_from_texts():
    texts = ["b a\x00b", "a\u00a0b  c", "long" * 300, "b"]
    tokenizer = NgramTokenizer.train(texts)
    assert tokenizer.vocabulary == ["</s>", "b", "a", "a\u00a0b", "c"]
    assert tokenizer.num_words == tokenizer.vocabulary_size == 5
    assert NgramTokenizer.train(texts, min_count=3).vocabulary == ["</s>", "b"]
    bigrams = NgramTokenizer.train(texts, min_count=2, num_buckets=7, word_ngrams=2)
    assert (bigrams.num_words, bigrams.num_buckets, bigrams.vocabulary_size) == (2, 7, 9)
    with pytest.raises(ValueError, match="6 words.*9 times: lower min_count"):
        NgramTokenizer.train(texts, min_count=9)


def test_a_dictionary_from_a_file(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("</s>\ngood\nß\n", "utf-8")
    assert NgramTokenizer(file).vocabulary == ["</s>", "good", "ß"]
    file.write_text("</s>\ngood film\n", "utf-8")
    with pytest.raises(ValueError, match=r"words.txt:2: 'good film'.*blank"):
        NgramTokenizer(file)
    with pytest.raises(FileNotFoundError, match=r"nothing.txt: no such file"):
        NgramTokenizer(tmp_path / "nothing.txt")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "words: no words"),
        (["a", ""], r"words\[1\]: '' is empty"),
        (["a", "b", "a"], r"words\[2\]: 'a' is repeated"),
        (["a\x00"], "contains a blank"),
        (["ß" * 501], "has more than 1000 bytes"),
    ],
)
def test_dictionaries_that_are_none(words, text):
    with pytest.raises(ValueError, match=text):
        NgramTokenizer(words)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_buckets": 0, "word_ngrams": 2}, "num_buckets=0: .*one"),
        ({"num_buckets": 0, "max_characters": 3}, "num_buckets=0: .*one"),
        ({"num_buckets": -1}, "num_buckets=-1"),
        ({"num_buckets": 2**31, "word_ngrams": 2}, "there can be at most 2"),
        ({"min_characters": 4, "max_characters": 3}, "min_characters=4, max_characters=3"),
        ({"min_characters": -1, "max_characters": 3}, "min_characters=-1"),
        ({"min_characters": 3}, "min_characters=3, max_characters=0"),
        ({"word_ngrams": 0}, "word_ngrams=0: must be 1 .only words"),
    ],
)
def test_ngrams_that_cannot_be(arguments, text):
    with pytest.raises(ValueError, match=text):
        NgramTokenizer(WORDS, **arguments)


def test_no_buckets_without_ngrams():
    for num_buckets in (0, 2_000_000):
        tokenizer = NgramTokenizer(WORDS, num_buckets=num_buckets)
        assert (tokenizer.num_buckets, tokenizer.vocabulary_size) == (0, 4)
        assert tokenizer.tokenize(tf.constant(["good bad"])).to_list() == [[1, 0]]


def test_calls_that_cannot_be():
    tokenizer = NgramTokenizer(WORDS)
    with pytest.raises(ValueError, match="second text"):
        tokenizer(["good"], ["film"], max_sequence_length=4)
    with pytest.raises(ValueError, match="second text"):
        tokenizer.lengths(["good"], ["film"])
    with pytest.raises(ValueError, match="max_sequence_length=0"):
        tokenizer(["good"], max_sequence_length=0)
    with pytest.raises(ValueError, match=r"\(\): expected \(batch,\)"):
        tokenizer("good", max_sequence_length=4)
