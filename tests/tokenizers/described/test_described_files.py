"""What a folder's files say of its tokenizer, as `tokenizers` 0.23 computes it."""

# ruff: noqa: RUF001

import json

import pytest
import tensorflow as tf
from random_files import GPT2, LLAMA3, OWN, byte_pairs, word_piece

from keras_transformers.convert.formats.tokenizer_files import read_tokenizers, write_tokenizers
from keras_transformers.families.bert import files as bert
from keras_transformers.families.gpt import files as gpt

BERT = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
SPLIT = {"type": "BertPreTokenizer"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


class Never:
    """A generator of random numbers for which nothing unlikely happens."""

    def random(self):
        return 1.0


def file(model, normalizer, splitter, added=()):
    return {
        "added_tokens": list(added),
        "normalizer": normalizer,
        "pre_tokenizer": splitter,
        "post_processor": None,
        "decoder": None,
        "model": model,
    }


def write(folder, contents, **config):
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(contents), "utf-8")
    config.setdefault("tokenizer_class", "PreTrainedTokenizerFast")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def tokens(folder, text):
    family = gpt.FAMILY if "merges" in (folder / "tokenizer.json").read_text() else bert.FAMILY
    (tokenizer,) = read_tokenizers(folder, family)
    ids = tokenizer.tokenize(tf.constant([text]))
    return " ".join(token.decode() for token in tokenizer.tokens(ids.values).numpy())


def words(*more):
    vocabulary = [*OWN[:5], "cafe", "café", "schon", "schön", "the", "film", "日", "本", "good"]
    vocabulary += ["great", "!", "(", ")", "<", ">", "concept", "is", *more]
    model = word_piece(Never())
    return {**model, "vocab": {token: i for i, token in enumerate(vocabulary)}}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


@pytest.mark.parametrize(
    ("normalizer", "splitter", "text", "expected"),
    [
        ({**BERT, "strip_accents": False}, SPLIT, "Café schön", "café schön"),
        ({**BERT, "handle_chinese_chars": False}, SPLIT, "the film日本語", "the [UNK]"),
        (
            sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}),
            SPLIT,
            "Ｇｏｏｄ film",
            "good film",
        ),
        (BERT, {"type": "Whitespace"}, "good!! (great)", "good [UNK] ( great )"),
        (BERT, {"type": "WhitespaceSplit"}, "good!! (great)", "[UNK] [UNK]"),
    ],
)
def test_words_as_the_file_says(normalizer, splitter, text, expected, tmp_path):
    assert tokens(write(tmp_path, file(words(), normalizer, splitter)), text) == expected


def test_an_added_token_is_one_token(tmp_path):
    model = words()
    added = {"id": len(model["vocab"]), "content": "<concept>", "normalized": False}
    folder = write(tmp_path, file(model, BERT, SPLIT, [added]))
    assert tokens(folder, "<concept> is good") == "<concept> is good"


def split(pattern):
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


NO_REGEX = {**BYTES, "use_regex": False}


@pytest.mark.parametrize(
    ("normalizer", "splitter", "text", "expected"),
    [
        (
            None,
            sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, BYTES),
            "the film is 123",
            "the Ġfilm Ġ is Ġ 1 2 3",
        ),
        (None, {**BYTES, "add_prefix_space": True}, "the film", "Ġthe Ġfilm"),
        (None, sequence("pretokenizers", split(LLAMA3), NO_REGEX), "Is 1234", "I s Ġ 123 4"),
        (None, sequence("pretokenizers", split(GPT2), NO_REGEX), "is!! 12", "is !! Ġ 12"),
        ({"type": "NFC"}, BYTES, "cafe\u0301", "c a f Ã©"),
        ({"type": "Lowercase"}, BYTES, "The FILM", "the Ġfilm"),
    ],
)
def test_bytes_as_the_file_says(normalizer, splitter, text, expected, tmp_path):
    assert (
        tokens(write(tmp_path, file(byte_pairs(Never()), normalizer, splitter)), text) == expected
    )


@pytest.mark.parametrize("name", ["[PAD]", "<user>"])
def test_a_token_added_to_a_byte_level_vocabulary(name, tmp_path):
    model = byte_pairs(Never())
    size = len(model["vocab"])
    folder = write(tmp_path, file(model, None, BYTES, [{"id": size, "content": name}]))
    (tokenizer,) = read_tokenizers(folder, gpt.FAMILY)
    assert tokenizer.vocabulary[size] == name
    assert tokenizer.vocabulary_size == size + 1
    assert tokens(folder, f"the{name}film") == f"the {name} film"


def test_classes_of_bert_ignore_the_normalizer_of_the_file(tmp_path):
    contents = file(words(), {**BERT, "strip_accents": False}, {"type": "WhitespaceSplit"})
    folder = write(tmp_path, contents, tokenizer_class="BertTokenizer", do_lower_case=True)
    assert tokens(folder, "Café schön!") == "cafe schon !"


@pytest.mark.parametrize(
    ("field", "value", "text", "expected"),
    [
        ("strip_accents", False, "Café Schön", "café schön"),
        ("tokenize_chinese_chars", False, "good日本", "[UNK]"),
    ],
)
def test_fields_of_bert_tokenizers(field, value, text, expected, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(words()["vocab"]) + "\n", "utf-8")
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, field: value}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file(words(), BERT, SPLIT)), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert tokens(tmp_path, text) == expected


def test_added_tokens_of_the_files_that_came_before(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(words()["vocab"]) + "\n", "utf-8")
    size = len(words()["vocab"])
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[E1]": size, "<user>": size + 1}))
    config = {"tokenizer_class": "BertTokenizer", "additional_special_tokens": ["[E1]"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tokenizer,) = read_tokenizers(tmp_path, bert.FAMILY)
    ids = tokenizer.tokenize(tf.constant(["[E1]film<user> good"])).to_list()[0]
    assert [tokenizer.vocabulary[i] for i in ids] == ["[E1]", "film", "<user>", "good"]


def test_special_tokens_without_an_id_come_after_the_vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(words()["vocab"]) + "\n", "utf-8")
    config = {"tokenizer_class": "BertTokenizer", "additional_special_tokens": ["[E1]", "good"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tokenizer,) = read_tokenizers(tmp_path, bert.FAMILY)
    ids = tokenizer.tokenize(tf.constant(["[E1]film goodgood"])).to_list()[0]
    assert [tokenizer.vocabulary[i] for i in ids] == ["[E1]", "film", "good", "good"]
    assert ids[0] == len(words()["vocab"])


def test_an_added_token_fills_a_hole_of_the_vocabulary(tmp_path):
    model = words()
    hole = model["vocab"].pop("concept")
    added = [{"id": hole, "content": "<concept>", "normalized": False}]
    folder = write(tmp_path, file(model, BERT, SPLIT, added))
    (tokenizer,) = read_tokenizers(folder, bert.FAMILY)
    ids = tokenizer.tokenize(tf.constant(["<concept> is good"])).to_list()[0]
    assert ids == [hole, model["vocab"]["is"], model["vocab"]["good"]]


def test_an_id_has_one_token(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(words()["vocab"]) + "\n", "utf-8")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<user>": 6}))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match="'<user>'.*6,"):
        read_tokenizers(tmp_path, bert.FAMILY)


def test_the_models_own_tokens_are_ordinary_text(tmp_path):
    model = words("[", "]", "sep")
    added = [
        {"id": model["vocab"][name], "content": name, "special": True, "normalized": False}
        for name in OWN[:5]
    ]
    folder = write(tmp_path, file(model, BERT, {"type": "Whitespace"}, added), sep_token="[SEP]")
    assert tokens(folder, "good [SEP] film") == "good [ sep ] film"


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("pre_tokenizer", {"type": "UnicodeScripts"}, "pre_tokenizer UnicodeScripts"),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": ""}, "Precompiled"),
        ("pre_tokenizer", BYTES, "pre_tokenizer ByteLevel"),
        ("pre_tokenizer", split("a(?=b)"), r"a\(\?=b\)"),
        ("post_processor", {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[PAD]", 0]},
         "post_processor BertProcessing"),
        ("model", {**words(), "max_input_chars_per_word": 50}, "max_input_chars_per_word=50"),
        ("model", {**words(), "unk_token": "film"}, "unk_token='film'; unknown words .* are"),
    ],
)  # fmt: skip
def test_what_has_no_form_here_is_named(part, value, message, tmp_path):
    folder = write(tmp_path, {**file(words(), BERT, SPLIT), part: value})
    with pytest.raises(ValueError, match=message):
        read_tokenizers(folder, bert.FAMILY)


def test_spans_in_the_original_text(tmp_path):
    normalizer = sequence("normalizers", {"type": "NFKD"}, {**BERT, "lowercase": True})
    (tokenizer,) = read_tokenizers(write(tmp_path, file(words(), normalizer, SPLIT)), bert.FAMILY)
    text = "Ｇｏｏｄ cafe\u0301!"
    ids, starts, ends = tokenizer.tokenize_with_offsets(tf.constant([text]))
    spans = zip(starts.values.numpy(), ends.values.numpy(), strict=True)
    assert [text.encode()[a:b].decode() for a, b in spans] == ["Ｇｏｏｄ", "cafe\u0301", "!"]
    assert [tokenizer.vocabulary[i] for i in ids.values.numpy()] == ["good", "cafe", "!"]


def test_transformers_reads_what_is_written(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = words()
    added = {"id": len(model["vocab"]), "content": "<user>", "normalized": False, "lstrip": True}
    normalizer = {**BERT, "strip_accents": False}
    folder = write(tmp_path / "given", file(model, normalizer, {"type": "Whitespace"}, [added]))
    (tokenizer,) = read_tokenizers(folder, bert.FAMILY)
    (tmp_path / "written").mkdir()
    write_tokenizers({"tokenizer": tokenizer}, tmp_path / "written", bert.FAMILY.writer, 32)
    (again,) = read_tokenizers(tmp_path / "written", bert.FAMILY)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "written")
    lines = ["Café <user> schön!!", "the film日本(good)", "", "<user>"]
    expected = tokenizer(lines, max_sequence_length=32)["token_ids"].numpy().tolist()
    assert again(lines, max_sequence_length=32)["token_ids"].numpy().tolist() == expected
    found = theirs(lines, padding=True, split_special_tokens=False)["input_ids"]
    assert found == expected
