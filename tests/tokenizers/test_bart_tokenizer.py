"""BART's tokenizer: RoBERTa's ids, sources and targets, and vocabularies without <mask>."""

import encoder_decoder_toys as toys
import pytest
import tensorflow as tf

from keras_transformers.tokenizers import BartTokenizer, RobertaTokenizer
from keras_transformers.tokenizers.packing import ends_of_sources

TEXTS = ["two dogs run", "", "naïve cafés <mask> </s>"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bart") / "vocabulary"
    toys.bart_tokenizer(path)
    return path


def test_its_ids_are_those_of_roberta(folder):
    ours, roberta = BartTokenizer(folder), RobertaTokenizer(folder)
    assert ours.vocabulary == roberta.vocabulary
    assert ours.tokenize(TEXTS).to_list() == roberta.tokenize(TEXTS).to_list()
    for number in (1, 2):
        assert ours.special_tokens(number) == roberta.special_tokens(number)
    assert ends_of_sources(ours) == ([0], [2])


def test_a_decoder_reads_the_end_token_and_writes_what_a_source_is(folder):
    ours = BartTokenizer(folder)
    plain = ours.tokenize(TEXTS).to_list()
    both = ours.tokenize(TEXTS, add_start=True, add_end=True).to_list()
    assert both == [[2, 0, *ids, 2] for ids in plain]
    assert ours.tokenize(TEXTS, add_end=True).to_list() == [[*ids, 2] for ids in plain]
    assert (ours.start_token_id, ours.bos_token_id, ours.pad_token_id) == (2, 0, 1)
    texts = ours.detokenize(tf.constant([[2, 0, *plain[0], 2, 1, 1]]))
    assert texts.numpy().tolist() == [TEXTS[0].encode()]


def test_a_model_may_lack_the_mask_but_no_other_token(folder, tmp_path):
    size = BartTokenizer(folder).vocabulary_size
    ours = BartTokenizer(folder, vocabulary_size=size - 1)
    assert (ours.vocabulary_size, len(ours.vocabulary)) == (size - 1, size - 1)
    assert "<mask>" not in ours.vocabulary
    assert not hasattr(ours, "mask_token_id")
    ours.save(tmp_path)
    again = BartTokenizer.load(tmp_path, **ours.config())
    assert again.vocabulary == ours.vocabulary
    assert again.tokenize(TEXTS).to_list() == ours.tokenize(TEXTS).to_list()
    assert BartTokenizer(folder, vocabulary_size=size + 5).vocabulary_size == size
    with pytest.raises(ValueError, match=f"{size} tokens, but the model only has {size - 2}: use"):
        BartTokenizer(folder, vocabulary_size=size - 2)


@pytest.mark.reference
def test_ids_equal_transformers(folder):
    import transformers

    theirs = transformers.BartTokenizer.from_pretrained(folder)
    ours = BartTokenizer(folder)
    texts = [*TEXTS[:2], "naïve cafés in 東京", " two  dogs\n"]
    wanted = theirs(texts)["input_ids"]
    (before, after) = ours.special_tokens(1)
    assert [[*before, *ids, *after] for ids in ours.tokenize(texts).to_list()] == wanted
