"""Added tokens around SentencePiece models: the ids that transformers 5.24 gives."""

# ruff: noqa: RUF001

import base64
import json
import random

import encoder_decoder_toys as toys
import pytest
import tensorflow as tf
import xlm_roberta_toy
from sentencepiece import sentencepiece_model_pb2

from keras_transformers.convert.formats.tokenizer_files import read_tokenizers, write_tokenizers
from keras_transformers.families.bert import files as bert
from keras_transformers.families.marian import files as marian
from keras_transformers.families.t5 import files as t5
from keras_transformers.families.xlm_roberta import files as xlm_roberta
from keras_transformers.tokenizers import MarianTokenizer, T5Tokenizer, XlmRobertaTokenizer

FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
NEW = {
    "<concept>": {"normalized": True},
    "Café film": {"normalized": True},
    "<l>": {"lstrip": True, "normalized": True},
    "<r>": {"rstrip": True},
    "dog": {"single_word": True, "normalized": True},
    "<e1>": {"special": True},
}
PIECES = [
    *("a", "film", " ", "  ", "<concept>", "＜concept＞", "Café film", "Cafe\u0301 film", "<l>"),
    *("<r>", "dog", "dogs", "dog,", "x", "\n", "\u3000", "▁", "<e1>", "東京", "!", "ﬁ", "run\t"),
    *("<conc", "<extra_id_3>", ">>deu<<", ">>xyz<<"),
]


def awkward_lines(count=120):
    generator = random.Random(5)
    fixed = ["", "<concept>", " <concept> ", "a <concept> film", "a<concept>film", "\u3000"]
    lines = ("".join(generator.choices(PIECES, k=generator.randint(1, 8))) for _ in range(count))
    return [*fixed, *lines]


LINES = awkward_lines()


def new_tokens(first, *, without=()):
    kept = {name: flags for name, flags in NEW.items() if name not in without}
    return [
        {"id": first + number, "content": name, **FLAGS, **flags}
        for number, (name, flags) in enumerate(kept.items())
    ]


def xlm_folder(folder, added=True, **config):
    tokenizer = xlm_roberta_toy.tokenizer(folder)
    return _with_config(folder, "XLMRobertaTokenizer", tokenizer.vocabulary_size, added, **config)


def _with_config(folder, kind, size, added, without=(), **config):
    tokens = new_tokens(size, without=without) if added else []
    decoder = {str(token.pop("id")): token for token in tokens}
    fields = {"tokenizer_class": kind, "added_tokens_decoder": decoder, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    return folder


def names(tokenizer, text):
    ids = tokenizer.tokenize(tf.constant([text])).values
    return [token.decode() for token in tokenizer.tokens(ids).numpy()]


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a<concept>film", ["▁a", "<concept>", "▁film"]),
        ("a ＜concept＞ film", ["▁a", "<concept>", "▁film"]),  # the text is normalized first
        ("Cafe\u0301 film", ["Café film"]),
        ("a <l> film <r> a", ["▁a", "<l>", "▁film", "<r>", "▁a"]),
        ("dog, hotdog", ["dog", "▁", ",", "▁", "h", "o", "t", "do", "g"]),
        ("<concept>", ["<concept>"]),
        ("", []),
        ("＜e1＞<e1>", ["▁", "<unk>", "e", "<unk>", "<e1>"]),  # found before normalization
        ("<s>a</s>", ["▁", "<unk>", "s", "<unk>", "a", "<unk>", "s", "<unk>"]),
    ],
)
def test_an_added_token_is_one_token(text, expected, tmp_path):
    (tokenizer,) = read_tokenizers(xlm_folder(tmp_path), xlm_roberta.FAMILY)
    assert names(tokenizer, text) == expected


def test_without_any_the_tokenizer_is_the_same(tmp_path):
    plain = XlmRobertaTokenizer(xlm_folder(tmp_path, added=False))
    (read,) = read_tokenizers(tmp_path, xlm_roberta.FAMILY)
    assert read.config() == plain.config() == {}
    assert read.tokenize(LINES).to_list() == plain.tokenize(LINES).to_list()


def test_spans_are_bytes_of_the_text(tmp_path):
    (tokenizer,) = read_tokenizers(xlm_folder(tmp_path), xlm_roberta.FAMILY)
    texts = ["a ＜concept＞ ﬁlm<e1>", "東京 <l>  a <r> film", "", "Cafe\u0301 film!"]
    ids, starts, ends = tokenizer.tokenize_with_offsets(tf.constant(texts))
    assert ids.to_list() == tokenizer.tokenize(texts).to_list()
    rows = zip(ids.to_list(), starts.to_list(), ends.to_list(), strict=True)
    for text, (row, first, last) in zip(texts, rows, strict=True):
        found = [text.encode()[a:b].decode() for a, b in zip(first, last, strict=True)]
        spans = dict(zip((tokenizer.vocabulary[i] for i in row), found, strict=True))
        assert spans.get("<concept>", "＜concept＞") == "＜concept＞"
        assert spans.get("<l>", "<l>") == "<l>"
        assert spans.get("Café film", "Cafe\u0301 film") == "Cafe\u0301 film"
        assert "".join("".join(found).split()) == "".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("family", ["xlm-roberta", "t5", "marian"])
def test_everywhere_the_same_and_saved(family, tmp_path):
    given, tokenizer = TOKENIZERS[family](tmp_path)
    tokenizer.save(tmp_path / "saved")
    again = type(tokenizer).load(tmp_path / "saved", **json.loads(json.dumps(tokenizer.config())))
    assert again.config()["added_tokens"]
    wanted = tokenizer.tokenize(LINES).to_list()
    assert {token["id"] for token in given} <= {piece for row in wanted for piece in row}
    data = tf.data.Dataset.from_tensor_slices(LINES).batch(50).map(again.tokenize)
    assert [row for batch in data for row in batch.to_list()] == wanted

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = tokenizer

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def ids(self, text):
            return tokenizer.tokenize(text)

    tf.saved_model.save(Module(), str(tmp_path / "export"))
    assert tf.saved_model.load(str(tmp_path / "export")).ids(LINES).to_list() == wanted


def xlm(path):
    (tokenizer,) = read_tokenizers(xlm_folder(path), xlm_roberta.FAMILY)
    (path / "saved").mkdir()
    return tokenizer.added_tokens, tokenizer


def t5_with_added(path):
    (path / "spiece.model").write_bytes(toys.t5_model())
    (path / "saved").mkdir()
    added = new_tokens(toys.NUM_PIECES + 10)
    return added, T5Tokenizer(path, num_extra_ids=10, vocabulary_size=64, added_tokens=added)


def marian_with_added(path):
    toys.marian_folder(path)
    (path / "saved").mkdir()
    size = MarianTokenizer(path).vocabulary_size
    added = new_tokens(size, without=("dog",))
    return added, MarianTokenizer(path, added_tokens=added)


TOKENIZERS = {"xlm-roberta": xlm, "t5": t5_with_added, "marian": marian_with_added}


@pytest.mark.parametrize("family", TOKENIZERS)
def test_texts_come_back_with_added_tokens(family, tmp_path):
    _, tokenizer = TOKENIZERS[family](tmp_path)
    ids = tokenizer.tokenize(["a <concept> a", "<e1>"])
    space = "" if family == "marian" else " "
    for given in (ids, ids.to_tensor(tokenizer.pad_token_id)):
        found = tokenizer.detokenize(given).numpy().tolist()
        assert found == [f"a{space}<concept> a".encode(), b"<e1>"]


def test_extra_ids_and_added_tokens_stand_side_by_side(tmp_path):
    _, tokenizer = t5_with_added(tmp_path)
    assert names(tokenizer, "<extra_id_3><concept>a")[:3] == ["<extra_id_3>", "<concept>", "▁a"]
    size = toys.NUM_PIECES + 10
    assert tokenizer.vocabulary[size : size + 2] == ["<concept>", "Café film"]
    assert tokenizer.vocabulary[-1] == "<unused_63>"
    with pytest.raises(ValueError, match="10 extra.*6 added.*45"):
        T5Tokenizer(tmp_path, num_extra_ids=10, vocabulary_size=45, added_tokens=new_tokens(size))


@pytest.mark.parametrize("name", ["added_tokens.json", "special_tokens_map.json", "config"])
def test_every_file_that_adds_tokens_is_read(name, tmp_path):
    folder = xlm_folder(tmp_path, added=False)
    size = XlmRobertaTokenizer(folder).vocabulary_size
    config = {"tokenizer_class": "XLMRobertaTokenizer"}
    if name == "added_tokens.json":
        (folder / name).write_text(json.dumps({"<new>": size}))
    elif name == "special_tokens_map.json":
        (folder / name).write_text(json.dumps({"additional_special_tokens": ["<new>"]}))
    else:
        config["additional_special_tokens"] = ["<new>"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (tokenizer,) = read_tokenizers(folder, xlm_roberta.FAMILY)
    assert names(tokenizer, "a<new>") == ["▁a", "<new>"]
    assert tokenizer.vocabulary_size == size + 1


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({"<new>": 99}, r"\[99\]; .*54"),
        ({"<new>": 20}, "'<new>' .*20"),
        ({"▁film": 54}, "'▁film' has the id 54, but the id"),
    ],
)
def test_ids_that_contradict_the_vocabulary_are_refused(tokens, message, tmp_path):
    folder = xlm_folder(tmp_path, added=False)
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "added_tokens.json").write_text(json.dumps(tokens))
    with pytest.raises(ValueError, match=message):
        read_tokenizers(folder, xlm_roberta.FAMILY)


def test_what_marian_cannot_match_is_refused(tmp_path):
    toys.marian_folder(tmp_path)
    size = MarianTokenizer(tmp_path).vocabulary_size
    with pytest.raises(ValueError, match="'dog': single_word=true"):
        MarianTokenizer(tmp_path, added_tokens=new_tokens(size))


def unigrams(folder, **changes):
    """Leaves only the tokenizer.json that transformers 5 writes of the folder's model."""
    tokenizer = XlmRobertaTokenizer(folder)
    model = folder / "sentencepiece.bpe.model"
    found = sentencepiece_model_pb2.ModelProto.FromString(model.read_bytes())
    model.unlink()
    scores = [0.0] * 4 + [piece.score for piece in found.pieces[3:]] + [0.0]
    vocabulary = [list(pair) for pair in zip(tokenizer.vocabulary, scores, strict=True)]
    size = tokenizer.vocabulary_size
    own = [
        {"id": tokenizer.vocabulary.index(token), "content": token, **FLAGS, "special": True}
        for token in tokenizer.own_tokens
    ]
    charsmap = base64.b64encode(found.normalizer_spec.precompiled_charsmap).decode()
    contents = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [*own, *new_tokens(size)],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                 "split": True},
            ],
        },
        "post_processor": None,
        "decoder": None,
        "model": {"type": "Unigram", "unk_id": 3, "vocab": vocabulary, "byte_fallback": False},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(contents | changes), "utf-8")
    return folder


@pytest.mark.one_case
@pytest.mark.parametrize("kind", ["XLMRobertaTokenizer", "PreTrainedTokenizerFast", None])
@pytest.mark.parametrize("family", [xlm_roberta.FAMILY, bert.FAMILY])
def test_xlm_robertas_tokenizer_json_is_enough(kind, family, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    folder = unigrams(xlm_folder(tmp_path, added=False))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({} if kind is None else {"tokenizer_class": kind, "add_prefix_space": True})
    )
    (tokenizer,) = read_tokenizers(folder, family)
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    wanted = [theirs.encode(line, add_special_tokens=False).ids for line in LINES]
    assert tokenizer.tokenize(LINES).to_list() == wanted


SPACES = [{"type": "Strip", "strip_left": False, "strip_right": True},
          {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]  # fmt: skip
META = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def changed(contents, **fields):
    return {**contents, **fields}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pre_tokenizer": {"type": "Digits"}}, "splits texts by Digits"),
        ({"pre_tokenizer": {**META, "prepend_scheme": "first"}}, "prepend_scheme='first'"),
        ({"pre_tokenizer": META}, "Metaspace without WhitespaceSplit keeps spaces"),
        ({"normalizer": {"type": "NFC"}}, "not a Hugging Face Unigram tokenizer"),
    ],
)
def test_a_file_that_splits_otherwise_is_refused(change, message, tmp_path):
    folder = unigrams(xlm_folder(tmp_path, added=False), **change)
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match=f"tokenizer.json: .*{message}"):
        read_tokenizers(folder, xlm_roberta.FAMILY)


def test_spaces_that_the_normalizer_shortens(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    folder = unigrams(xlm_folder(tmp_path, added=False))
    file = folder / "tokenizer.json"
    found = json.loads(file.read_text())
    raw = [token for token in found["added_tokens"] if not token["normalized"]]
    size = len(found["model"]["vocab"])
    for number, token in enumerate([token for token in raw if token["id"] >= size], size):
        token["id"] = number
    found["normalizer"] = {"type": "Sequence", "normalizers": [found["normalizer"], *SPACES]}
    file.write_text(json.dumps(found | {"pre_tokenizer": META, "added_tokens": raw}))
    (folder / "tokenizer_config.json").write_text("{}")
    (tokenizer,) = read_tokenizers(folder, xlm_roberta.FAMILY)
    theirs = tokenizers.Tokenizer.from_file(str(file))
    lines = [line for line in LINES if "▁" not in line]
    wanted = [theirs.encode(line, add_special_tokens=False).ids for line in lines]
    assert tokenizer.tokenize(lines).to_list() == wanted


@pytest.mark.parametrize("family", TOKENIZERS)
def test_transformers_reads_what_is_written(family, tmp_path):
    transformers = pytest.importorskip("transformers")
    given, tokenizer = TOKENIZERS[family](tmp_path)
    module = {"xlm-roberta": xlm_roberta, "t5": t5, "marian": marian}[family]
    tokenizers = {"tokenizer": tokenizer}
    if family == "marian":
        added = [{**token, "normalized": False} for token in given]
        target = MarianTokenizer(tmp_path, side="target", added_tokens=added)
        tokenizers["target_tokenizer"] = target
    (tmp_path / "written").mkdir()
    write_tokenizers(tokenizers, tmp_path / "written", module.FAMILY.writer, 512)
    kind = module.FAMILY.writer.tokenizer_class
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / "written")
    wanted = [theirs(line, add_special_tokens=False)["input_ids"] for line in LINES]
    assert tokenizer.tokenize(LINES).to_list() == wanted
