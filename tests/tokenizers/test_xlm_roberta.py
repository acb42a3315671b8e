"""XLM-RoBERTa's tokenizer against the `sentencepiece` library, and its packing."""

import pytest
import sentencepiece
import tensorflow as tf
import xlm_roberta_toy

from keras_transformers.tokenizers import SentencePieceTokenizer, XlmRobertaTokenizer

TEXTS = [
    *("a good film", "", " two  dogs\nrun\t", "Cafés in Zürich, 東京 🎬🎬!", "<s> is text </s>"),
    *("Ada Lovelace was born in London.", "x\u00a0\u3000 ﬁlm", "<mask> <unk>"),
]


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return xlm_roberta_toy.tokenizer(tmp_path_factory.mktemp("xlm_roberta"))


@pytest.fixture(scope="module")
def theirs(ours):
    return sentencepiece.SentencePieceProcessor(model_proto=ours._model)


def fairseq(ids):
    """The library's ids as in XLM-RoBERTa: its unknown piece is 0."""
    return [piece + 1 if piece else 3 for piece in ids]


def rows(packed):
    return [
        ids[mask].tolist()
        for ids, mask in zip(
            packed["token_ids"].numpy(), packed["padding_mask"].numpy(), strict=True
        )
    ]


def test_ids_are_those_of_the_library_plus_one(ours, theirs):
    found = ours.tokenize(tf.constant(TEXTS)).to_list()
    assert found == [fairseq(theirs.encode(text)) for text in TEXTS]
    assert ours.unknown_token_id in found[3]
    assert {0, 1, 2, ours.mask_token_id}.isdisjoint({piece for row in found for piece in row})


def test_the_vocabulary_is_fairseqs(ours, theirs):
    pieces = [theirs.id_to_piece(piece) for piece in range(3, theirs.vocab_size())]
    wanted = ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"]
    assert ours.vocabulary == wanted
    assert ours.vocabulary_size == len(wanted) == theirs.vocab_size() + 2
    assert wanted[ours.mask_token_id] == ours.mask_token == "<mask>"


def test_one_text_and_pairs_are_packed_as_in_roberta(ours):
    segments = ours.tokenize(TEXTS).to_list()
    packed = ours(TEXTS, max_sequence_length=64)
    assert set(packed) == {"token_ids", "padding_mask"}
    assert rows(packed) == [[0, *row, 2] for row in segments]
    packed = ours(TEXTS, TEXTS[::-1], max_sequence_length=99, pad_to_max_length=True)
    assert packed["token_ids"].shape == (len(TEXTS), 99)
    pairs = zip(segments, segments[::-1], strict=True)
    assert rows(packed) == [[0, *a, 2, 2, *b, 2] for a, b in pairs]
    assert set(packed["token_ids"].numpy()[~packed["padding_mask"].numpy()]) == {1}


def test_spans_are_those_of_the_words(ours):
    ids, starts, ends = ours.tokenize_with_offsets(TEXTS)
    assert ids.to_list() == ours.tokenize(TEXTS).to_list()
    tokens = ids.with_values(ours.tokens(ids.values)).to_list()
    for text, row, first, last in zip(TEXTS, tokens, starts.to_list(), ends.to_list(), strict=True):
        found = [text.encode()[a:b].decode() for a, b in zip(first, last, strict=True)]
        assert "".join(found) == "".join(text.split())
        for token, span in zip(row, found, strict=True):
            if token != b"<unk>" and "ﬁ" not in span:
                assert token.decode().removeprefix("▁") == span


def test_texts_come_back_without_special_tokens(ours):
    packed = ours(["two  dogs run"], ["a film"], max_sequence_length=40, pad_to_max_length=True)
    assert ours.detokenize(packed["token_ids"]).numpy().tolist() == [b"two dogs run a film"]
    masked = tf.ragged.constant([[ours.mask_token_id, ours.unknown_token_id]])
    assert ours.detokenize(masked).numpy().tolist() == [" ⁇ ".encode()]


def test_invalid_utf8_and_a_graph(ours):
    texts = tf.constant([b"a \xff film", b"", b"\x00"])
    in_graph = tf.function(ours.tokenize_with_offsets)(texts)
    for one, other in zip(in_graph, ours.tokenize_with_offsets(texts), strict=True):
        assert one.to_list() == other.to_list()
    good, unknown = ours.tokenize(["a film"]).to_list()[0], ours.unknown_token_id
    assert [piece for piece in ours.tokenize(texts).to_list()[0] if piece in good] == good
    assert unknown in ours.tokenize(texts).to_list()[0]


def test_a_mask_takes_the_white_space_before_it(ours):
    pieces = ours.split_at_masks(["a <mask> film", "x \u00a0<mask>"])
    assert pieces.to_list() == [[b"a", b" film"], [b"x", b""]]


def test_it_is_saved_and_loaded(ours, tmp_path):
    ours.save(tmp_path)
    again = XlmRobertaTokenizer.load(tmp_path, **ours.config())
    assert again.vocabulary == ours.vocabulary
    assert (tmp_path / "sentencepiece.bpe.model").read_bytes() == ours._model


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"sentencepiece\.bpe\.model: no such file"):
        XlmRobertaTokenizer(tmp_path)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"no model")
    with pytest.raises(ValueError, match=r"sentencepiece\.bpe\.model:.*SentencePiece model"):
        XlmRobertaTokenizer(tmp_path)
    (tmp_path / "text").write_text("\n".join(xlm_roberta_toy.LINES))
    path = tmp_path / "other.model"
    SentencePieceTokenizer.train([tmp_path / "text"], path, vocabulary_size=320)
    with pytest.raises(ValueError, match=r"\['<pad>', '<unk>', '<s>'\], but XlmRoberta"):
        XlmRobertaTokenizer(path)


def test_too_short_rows_are_refused(ours):
    with pytest.raises(ValueError, match="special tokens take 4"):
        ours(["a"], ["b"], max_sequence_length=3)


@pytest.mark.reference
def test_ids_equal_transformers(ours, tmp_path):
    import transformers

    ours.save(tmp_path)
    theirs = transformers.XLMRobertaTokenizer.from_pretrained(tmp_path)
    plain = [text for text in TEXTS if "<" not in text]  # special tokens are not text to us
    found = rows(ours(plain, plain[::-1], max_sequence_length=99))
    assert found == theirs(plain, plain[::-1])["input_ids"]
