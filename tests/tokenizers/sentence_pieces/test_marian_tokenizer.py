"""Marian's tokenizers: one vocabulary, a SentencePiece model for each side, languages."""

import json

import encoder_decoder_toys as toys
import pytest
import tensorflow as tf

from keras_transformers.tokenizers import MarianTokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toys.marian_folder(tmp_path_factory.mktemp("marian"))


@pytest.fixture(scope="module")
def source(folder):
    return MarianTokenizer(folder)


def test_special_tokens_are_where_the_vocabulary_has_them(source):
    assert source.vocabulary[:2] == ["</s>", "<unk>"]
    assert (source.end_token_id, source.unknown_token_id) == (0, 1)
    assert source.pad_token_id == source.start_token_id == source.vocabulary_size - 1
    ids = source.tokenize(["", "a"], add_start=True, add_end=True).to_list()
    assert ids[0] == [source.pad_token_id, 0]
    assert (ids[1][0], ids[1][-1]) == (source.pad_token_id, 0)


def test_both_sides_share_their_ids(folder, source):
    target = MarianTokenizer(folder, side="target")
    assert target.vocabulary == source.vocabulary
    for tokenizer, text in ((source, "two dogs run"), (target, "ein kleiner Hund")):
        ids = tokenizer.tokenize([text, "", "東"], add_start=True, add_end=True)
        expected = [text.encode(), b"", "⁇".encode()]
        assert [each.strip() for each in tokenizer.detokenize(ids).numpy()] == expected
        padded = ids.to_tensor(tokenizer.pad_token_id)
        found = tokenizer.detokenize(padded[:, None]).numpy()[:, 0].tolist()
        assert [each.strip() for each in found] == expected
    assert target.detokenize(tf.zeros((2, 0), tf.int32)).numpy().tolist() == [b"", b""]


def test_a_language_is_the_first_token(source):
    ids = source.tokenize([">>deu<< two dogs", "two dogs", ">>xyz<< two dogs", "a >>deu<<"])
    ids = ids.to_list()
    assert ids[0] == [source.vocabulary.index(">>deu<<"), *ids[1]]
    assert ids[2] == [source.unknown_token_id, *ids[1]]
    assert source.vocabulary.index(">>deu<<") not in ids[3]


def test_saved_and_loaded(folder, tmp_path):
    target = MarianTokenizer(folder, side="target")
    target.save(tmp_path)
    loaded = MarianTokenizer.load(tmp_path, **target.config())
    assert loaded.vocabulary == target.vocabulary
    texts = ["ein kleiner Hund", ">>deu<< Hund"]
    assert loaded.tokenize(texts).to_list() == target.tokenize(texts).to_list()


def test_damaged_or_missing_files_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="side='both'.*use 'source'.*'target'"):
        MarianTokenizer(folder, side="both")
    with pytest.raises(FileNotFoundError, match="source.spm: no such file"):
        MarianTokenizer(tmp_path)
    (tmp_path / "source.spm").write_bytes((folder / "source.spm").read_bytes())
    with pytest.raises(FileNotFoundError, match="vocab.json"):
        MarianTokenizer(tmp_path)
    for content in ({"</s>": 0, "<unk>": 1}, {"</s>": 0, "<unk>": 2, "<pad>": 3}, {"</s>": "0"}):
        (tmp_path / "vocab.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match="vocab.json: "):
            MarianTokenizer(tmp_path)


@pytest.mark.reference
def test_ids_are_those_of_transformers(folder, source):
    import transformers

    theirs = transformers.MarianTokenizer.from_pretrained(folder)
    for text in ("two dogs run", ">>deu<< a small dog", "東 dog", "  a   dog "):
        ours = source.tokenize([text], add_end=True).to_list()[0]
        assert ours == theirs(text)["input_ids"], text
