"""Byte-level byte pairs as Llama 3, Qwen and SmolLM2 have them, against `tokenizers`."""

import json
import random
import runpy
from pathlib import Path

import pytest
import tensorflow as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from keras_transformers.convert.families import family_named
from keras_transformers.convert.formats.tokenizer_files import read_tokenizers, write_tokenizers
from keras_transformers.tokenizers import DescribedTokenizer

RANDOM_FILES = runpy.run_path(str(Path(__file__).with_name("described") / "random_files.py"))
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MORE = ["I'LL", "we'Re", "1234567", " ½", "x\r\n\r\ny", "\t\tif", "<|im_end|>", "<|im_st", "\x85"]
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
# Name -> normalizer, pre-tokenizer, whether words that are tokens stay whole, start token.
KINDS = {
    "smollm": (
        None,
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        ),
        False,
        "",
    ),
    "llama3": (None, "LLAMA3", True, "<|im_start|>"),
    "qwen2": ("NFC", "QWEN2", False, ""),
}


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory):
    """A folder with a tokenizer.json, and the tokenizer of `tokenizers`."""
    normalizer, splitter, whole, start = KINDS[request.param]
    theirs = Tokenizer(models.BPE(ignore_merges=whole))
    if normalizer is not None:
        from tokenizers import normalizers

        theirs.normalizer = normalizers.NFC()
    if isinstance(splitter, str):
        from tokenizers import Regex

        pattern = pre_tokenizers.Split(Regex(RANDOM_FILES[splitter]), "isolated")
        splitter = pre_tokenizers.Sequence([pattern, BYTES])
    theirs.pre_tokenizer, theirs.decoder = splitter, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if request.param == "smollm":  # its vocabulary lacks bytes that UTF-8 never or seldom has
        alphabet = sorted(alphabet)[:200]
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=SPECIAL,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    texts = [Path(__file__).read_text("utf-8"), "the film is good, don't you think? 日本語 " * 20]
    theirs.train_from_iterator(texts, trainer)
    if start:
        theirs.post_processor = processors.TemplateProcessing(
            single=f"{start} $A",
            pair=f"{start} $A {start} $B:1",
            special_tokens=[(start, theirs.token_to_id(start))],
        )
    folder = tmp_path_factory.mktemp(request.param)
    contents = json.loads(theirs.to_str())
    if whole:  # a token that the merges of its letters do not make
        last = contents["model"]["merges"][-1]
        contents["model"]["vocab"]["xyzq"] = len(contents["model"]["vocab"])
        contents["model"]["merges"] += [["x", "y"], ["z", "q"], ["xy", "zq"], ["y", "z"]]
        order = contents["model"]["merges"]
        order.insert(0, order.pop())  # "y z" first, so that "xy" never meets "zq"
        for token in ("xy", "zq", "yz"):
            contents["model"]["vocab"][token] = len(contents["model"]["vocab"])
        assert last in order
        theirs = Tokenizer.from_str(json.dumps(contents))
    (folder / "tokenizer.json").write_text(json.dumps(contents), "utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    config |= {"bos_token": start or None, "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder, theirs


def lines(count, seed=0):
    generator = random.Random(seed)
    pieces = [*RANDOM_FILES["PIECES"], *MORE, *SPECIAL, "xyzq", " xyzq"]
    found = ["", *pieces]
    while len(found) < count:
        found.append("".join(generator.choices(pieces, k=generator.randint(2, 12))))
    return found


def ours(folder):
    return read_tokenizers(folder, family_named("llama"))[0]


def check(tokenizer, theirs, texts):
    found = tokenizer.tokenize(tf.constant(texts)).to_list()
    expected = [each.ids for each in theirs.encode_batch(texts, add_special_tokens=False)]
    assert [t for t, a, b in zip(texts, found, expected, strict=True) if a != b] == []
    return found


def test_ids_texts_and_files_are_those_of_tokenizers(made, tmp_path):
    folder, theirs = made
    tokenizer = ours(folder)
    assert tokenizer.special_tokens(1) == [theirs.encode("").ids, []]
    texts = lines(250)
    found = check(tokenizer, theirs, texts)
    rows = tf.ragged.constant(found, tf.int32)
    expected = [theirs.decode(row) for row in found]  # without special tokens
    decoded = tf.strings.unicode_transcode(tokenizer.detokenize(rows), "UTF-8", "UTF-8")
    assert [text.decode() for text in decoded.numpy()] == expected

    family = family_named("llama")
    write_tokenizers({"tokenizer": tokenizer}, tmp_path, family.writer, 64)
    check(ours(tmp_path), theirs, texts)
    check(ours(tmp_path), Tokenizer.from_file(str(tmp_path / "tokenizer.json")), texts)
    again = DescribedTokenizer.load(tmp_path, **tokenizer.config())
    check(again, theirs, texts[:40])


@pytest.mark.slow
def test_ids_of_ten_thousand_awkward_lines(made):
    check(ours(made[0]), made[1], lines(10_000, seed=1))


def test_a_graph_gives_the_same_ids(made):
    tokenizer = ours(made[0])
    texts = tf.constant(lines(60))
    run = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    assert run(texts).to_list() == tokenizer.tokenize(texts).to_list()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eos_token": None}, "no eos_token"),
        ({"eos_token": ["a"]}, "eos_token=.*expected a token"),
        ({"eos_token": "<gone>"}, "<gone>"),
    ],
)
def test_files_that_name_no_end_are_refused(made, change, message, tmp_path):
    for file in made[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ValueError, match=message):
        ours(tmp_path)
