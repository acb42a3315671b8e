"""Fifty random tokenizer.json: the ids of `tokenizers`, or a refusal that names the component."""

import json
import random

import pytest
import tensorflow as tf
from random_files import awkward, random_file, without_own
from tokenizers import Tokenizer

from keras_transformers.convert.formats.tokenizer_files import read_tokenizers
from keras_transformers.families.bert import files as bert
from keras_transformers.families.gpt import files as gpt

LEAST_COMPUTED = 0.8  # of all files
REFUSED = ("normalizer", "pre_tokenizer", "model", "added token")


def ours(contents, folder, tokenizer_class="PreTrainedTokenizerFast"):
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(contents), "utf-8")
    config = {"tokenizer_class": tokenizer_class}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    family = bert.FAMILY if contents["model"]["type"] == "WordPiece" else gpt.FAMILY
    return read_tokenizers(folder, family)[0]


def theirs(contents, lines):
    tokenizer = Tokenizer.from_str(json.dumps(without_own(contents)))
    return [each.ids for each in tokenizer.encode_batch(lines, add_special_tokens=False)]


@pytest.mark.parametrize("count", [15, pytest.param(50, marks=pytest.mark.slow)])
def test_random_files(count, tmp_path):
    computed, refusals = 0, []
    for seed in range(count):
        contents = random_file(random.Random(seed))
        try:
            tokenizer = ours(contents, tmp_path / str(seed))
        except ValueError as error:
            refusals.append(str(error))
            continue
        lines = awkward(random.Random(seed), count=100)
        found = tokenizer.tokenize(tf.constant(lines)).to_list()
        expected = theirs(contents, lines)
        different = [line for line, a, b in zip(lines, found, expected, strict=True) if a != b]
        assert different == [], seed
        computed += 1
    unnamed = [each for each in refusals if not any(part in each for part in REFUSED)]
    assert unnamed == []
    assert computed >= LEAST_COMPUTED * count


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, pytest.param(14, marks=pytest.mark.slow)])
def test_graphs_offsets_and_round_trips(seed, tmp_path):
    contents = random_file(random.Random(seed))
    tokenizer = ours(contents, tmp_path / "file")
    lines = tf.constant(awkward(random.Random(seed), count=20))
    expected = tokenizer.tokenize(lines).to_list()

    module = tf.Module()
    module.tokenizer = tokenizer
    module.tokenize = tf.function(
        tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(module, str(tmp_path / "model"))
    assert tf.saved_model.load(str(tmp_path / "model")).tokenize(lines).to_list() == expected
    mapped = tf.data.Dataset.from_tensors(lines).map(tokenizer.tokenize)
    assert next(iter(mapped)).to_list() == expected

    ids, starts, ends = tokenizer.tokenize_with_offsets(lines)
    assert ids.to_list() == expected
    lengths = tf.strings.length(lines).numpy()
    for row, length in enumerate(lengths):
        spans = list(zip(starts[row].numpy(), ends[row].numpy(), strict=True))
        assert all(0 <= start <= end <= length for start, end in spans)

    (tmp_path / "saved").mkdir()
    tokenizer.save(tmp_path / "saved")
    config = json.loads(json.dumps(tokenizer.config()))
    again = type(tokenizer).load(tmp_path / "saved", **config)
    assert again.tokenize(lines).to_list() == expected
    assert again.vocabulary == tokenizer.vocabulary
    assert len(tokenizer.vocabulary) == tokenizer.vocabulary_size
