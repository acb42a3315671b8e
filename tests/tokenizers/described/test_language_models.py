"""Tokenizers of language models: the ids and texts of `tokenizers`, llama.cpp's arrays, files."""

import json
import random

import pytest
import sentencepiece
import tensorflow as tf
from language_models import BYTES, PUBLISHED, STYLES, TOKENS, awkward_lines, contents, published
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from keras_transformers.convert.families import family_named
from keras_transformers.convert.formats.tokenizer_files import read_tokenizers, write_tokenizers
from keras_transformers.families.llama.tokenizers import (
    gguf_tokenizer,
    language_tokenizer,
)
from keras_transformers.tokenizers import DescribedTokenizer

OF_BYTES = [style for style, parts in STYLES.items() if not parts.get("byte_fallback")]
CORPUS = [
    "Hello, the world isn't 1234567890 worlds; DON'T say they've said it's the café at 3.14!\n",
    "the __init__ of a_b  and   the  x1y2 => (the) [INST] user\n\n\tdef the():\r\n  return 'the'",
    "Straße, naïve cafés: 日本語 中文字符 한국어 Привет мир, Ελλάς и العربية 😀😀 aaaa aaaa aaaa",
]


def trained(splitter, alphabet):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splitter
    trainer = trainers.BpeTrainer(
        vocab_size=500, min_frequency=1, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), model["merges"]


@pytest.fixture(scope="session")
def vocabularies():
    """Tokens and merges of bytes, and of characters with bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    of_bytes = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), alphabet)
    # Spaces join words in it, as a vocabulary may.
    tokens, merges = trained(pre_tokenizers.Metaspace(split=False), [])
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    return of_bytes, ([*first, *tokens], merges)


@pytest.fixture(scope="session")
def described(vocabularies):
    """Returns the file of a style, its tokenizer here, and that of `tokenizers`."""
    made = {}

    def make(style):
        if style not in made:
            fallback = style not in OF_BYTES
            added = ["<unk>", "<s>", "</s>", "<|im_start|>"] if fallback else TOKENS
            description = contents(style, *vocabularies[fallback], added)
            theirs = Tokenizer.from_str(json.dumps(description))
            made[style] = description, DescribedTokenizer(description), theirs
        return made[style]

    return make


def check_ids(ours, theirs, lines, *, batch=500):
    """Checks ids, and texts made of them, against `tokenizers`."""
    run = ours.tokenize
    if len(lines) > batch:
        run = tf.function(run, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
    different = []
    for start in range(0, len(lines), batch):
        part = lines[start : start + batch]
        ids = run(tf.constant(part)).to_list()
        expected = [each.ids for each in theirs.encode_batch(part, add_special_tokens=False)]
        texts = ours.detokenize(tf.ragged.constant(expected, tf.int32)).numpy()
        texts = [text.decode("utf-8", "replace") for text in texts]
        answers = theirs.decode_batch(expected)
        rows = zip(part, ids, expected, texts, answers, strict=True)
        different += [line for line, a, b, text, answer in rows if a != b or text != answer]
    assert different == []


@pytest.mark.parametrize("style", STYLES)
def test_ids_and_texts_are_those_of_tokenizers(style, described):
    _, ours, theirs = described(style)
    check_ids(ours, theirs, awkward_lines(random.Random(3), 350))


def test_a_word_that_is_a_token_stays_whole_if_the_file_ignores_merges(vocabularies):
    """Merges alone would make y+z of xyzq first, and never the token xyzq."""
    tokens, merges = vocabularies[0]
    tokens = [*tokens, "xyzq", "xy", "zq", "yz"]
    merges = [["y", "z"], *merges, ["x", "y"], ["z", "q"], ["xy", "zq"]]
    merges = [merge for i, merge in enumerate(merges) if merge not in merges[:i]]
    description = contents("llama3", list(dict.fromkeys(tokens)), merges, TOKENS)
    theirs = Tokenizer.from_str(json.dumps(description))
    lines = ["xyzq", " xyzq", "xyzq xyzq'xyzq", "axyzq"]
    check_ids(DescribedTokenizer(description), theirs, lines)
    assert theirs.encode("xyzq", add_special_tokens=False).tokens == ["xyzq"]


def test_bytes_that_a_vocabulary_lacks_have_no_tokens(vocabularies):
    """SmolLM2's vocabulary lacks bytes that UTF-8 never or seldom has."""
    tokens, merges = vocabularies[0]
    lacking = sorted(pre_tokenizers.ByteLevel.alphabet())[200:]
    kept = [token for token in tokens if not set(token) & set(lacking)]
    merges = [merge for merge in merges if not set("".join(merge)) & set(lacking)]
    description = contents("smollm2", kept, merges, TOKENS)
    theirs = Tokenizer.from_str(json.dumps(description))
    check_ids(DescribedTokenizer(description), theirs, awkward_lines(random.Random(9), 200))


@pytest.mark.parametrize("style", ["llama3", "mistral"])
def test_names_of_special_tokens_can_be_ordinary_text(style, described):
    description, ours, _ = described(style)
    theirs = Tokenizer.from_str(json.dumps(description))
    theirs.encode_special_tokens = True
    lines = ["<|im_start|>user\nHello", "<s> the</s>", "a<|im_end|>b"]
    found = ours.tokenize(lines, match_special_tokens=False).to_list()
    assert found == [each.ids for each in theirs.encode_batch(lines, add_special_tokens=False)]
    assert found[0] != ours.tokenize(lines).to_list()[0]


@pytest.mark.parametrize("style", ["llama3", "llama2", "qwen2"])
def test_special_tokens_stand_where_the_file_says(style, described):
    _, ours, theirs = described(style)
    lines = ["Hello", "the world, 12"]
    packed = ours.pack([ours.tokenize(lines)], max_sequence_length=30)
    assert packed["token_ids"][1].numpy().tolist() == theirs.encode(lines[1]).ids
    pair = ours.pack([ours.tokenize(lines[:1]), ours.tokenize(lines[1:])], max_sequence_length=30)
    assert pair["token_ids"][0].numpy().tolist() == theirs.encode(*lines).ids


@pytest.mark.parametrize("style", ["smollm2", "qwen2", "llama2", "mistral"])
def test_spans_are_those_of_tokenizers_without_white_space(style, described):
    _, ours, theirs = described(style)
    line = "Hello <|im_start|>the  naïve 😀 12 日本 don't"
    ids, starts, ends = ours.tokenize_with_offsets([line])
    encoding = theirs.encode(line, add_special_tokens=False)
    assert ids.to_list() == [encoding.ids]
    for start, end, (first, last) in zip(starts[0], ends[0], encoding.offsets, strict=True):
        assert line.encode()[start:end].decode() == line[first:last].strip()


@pytest.mark.parametrize("style", ["llama3", pytest.param("llama2", marks=pytest.mark.slow)])
def test_saved_loaded_and_exported_it_is_the_same(style, described, tmp_path):
    description, _, _ = described(style)
    start = "<s>" if style == "llama2" else TOKENS[2]
    ours = DescribedTokenizer(description, start_token=start, vocabulary_size=1000)
    lines = tf.constant(awkward_lines(random.Random(4), 150))
    expected = ours.tokenize(lines).to_list()
    ours.save(tmp_path)
    again = DescribedTokenizer.load(tmp_path, **json.loads(json.dumps(ours.config())))
    assert again.tokenize(lines).to_list() == expected
    assert again.vocabulary == ours.vocabulary
    assert len(ours.vocabulary) == ours.vocabulary_size == 1000
    assert again.start_token_id == ours.start_token_id == ours.special_tokens(1)[0][0]
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab_size() == ours.num_tokens

    module = tf.Module()
    module.tokenizer = ours
    module.ids = tf.function(
        ours.tokenize, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    module.text = tf.function(
        ours.detokenize, input_signature=[tf.TensorSpec([None, None], tf.int32)]
    )
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    ids = loaded.ids(lines)
    assert ids.to_list() == expected
    texts = loaded.text(ids.to_tensor(ours.start_token_id)).numpy().tolist()
    assert texts == ours.detokenize(ids).numpy().tolist()


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        (
            "pre_tokenizer",
            {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": r"\p{Lu}+|\S(?=x)"}},
                    {**BYTES, "use_regex": False},
                ],
            },
            r"\\p\{Lu\}\+\|\\\\S\(\?=x\)",
        ),
        ("decoder", {"type": "WordPiece"}, "decoder WordPiece"),
        ("post_processor", {"type": "RobertaProcessing"}, "post_processor 'RobertaProcessing'"),
        ("normalizer", {"type": "Precompiled"}, "normalizer Precompiled"),
        ("added_tokens", [{"id": 5, "content": "<x>"}], "'<x>' has the id 5"),
        ("added_tokens", [{"id": 5000, "content": "<x>"}], "without gaps"),
        ("added_tokens", [{"id": 1}], "needs content and an id"),
        ("model", None, "has no model"),
        ("model", {"type": "Unigram", "vocab": []}, "expected BPE"),
    ],
)
def test_what_has_no_exact_form_is_refused(part, value, message, described):
    description, _, _ = described("gpt2")
    with pytest.raises(ValueError, match=message):
        DescribedTokenizer({**description, part: value})


@pytest.mark.parametrize(
    ("style", "field", "value", "message"),
    [
        ("gpt2", "dropout", 0.1, "dropout=0.1"),
        ("gpt2", "end_of_word_suffix", "</w>", "end_of_word_suffix='</w>'"),
        ("gpt2", "merges", [["a", "🙂"]], "needs '🙂'"),
        ("gpt2", "merges", ["a b c"], "not a pair of tokens"),
        ("gpt2", "vocab", {"a": 0, "b": 2}, "not 0 to 1, each once"),
        ("gpt2", "vocab", {"🙂": 0}, "lacks 256 of the 256 bytes"),
        ("llama2", "byte_fallback", False, "needs byte_fallback=true"),
        ("llama2", "vocab", {"a": 0}, "0 of the tokens <0x00> to <0xFF>"),
    ],
)
def test_models_that_have_no_exact_form_are_refused(style, field, value, message, described):
    description, _, _ = described(style)
    model = {**description["model"], "merges": [], field: value}
    changed = {**description, "model": model, "added_tokens": [], "post_processor": None}
    with pytest.raises(ValueError, match=message):
        DescribedTokenizer(changed)


def gguf_fields(description, pre):
    """The metadata that llama.cpp writes for a byte-level tokenizer.json."""
    tokens = [*description["model"]["vocab"], *TOKENS]
    kinds = [1] * (len(tokens) - len(TOKENS)) + [3] * len(TOKENS) + [5]
    start = tokens.index(TOKENS[2])
    fields = {
        "model": "gpt2",
        "pre": pre,
        "tokens": [*tokens, "[PAD]"],
        "token_type": kinds,
        "merges": [" ".join(merge) for merge in description["model"]["merges"]],
        "bos_token_id": start,
        "eos_token_id": start,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items()}


@pytest.mark.parametrize(
    ("pre", "style"),
    [("llama-bpe", "llama3"), ("qwen2", "qwen2"), ("smollm", "smollm2"), ("gpt-2", "gpt2")],
)
def test_arrays_of_llama_cpp_make_the_published_tokenizer(pre, style, described, tmp_path):
    description, expected, _ = described(style)
    found = gguf_tokenizer(gguf_fields(description, pre), tmp_path / "a.gguf")
    lines = awkward_lines(random.Random(5), 200)
    assert found.tokenize(lines).to_list() == expected.tokenize(lines).to_list()
    assert found.special_tokens(1) == expected.special_tokens(1)
    assert found.vocabulary_size == found.num_tokens + 1


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("pre", "jais", "pre='jais'; expected one of dbrx"),
        ("model", "rwkv", "model='rwkv'"),
        ("tokens", None, "tokens=None"),
        ("token_type", [1], "has 1 values"),
        ("bos_token_id", 10**6, "bos_token_id=1000000"),
        ("merges", ["a"], "not a pair"),
    ],
)
def test_damaged_arrays_are_refused_by_file_and_field(field, value, message, described, tmp_path):
    fields = gguf_fields(described("gpt2")[0], "gpt-2") | {f"tokenizer.ggml.{field}": value}
    with pytest.raises(ValueError, match=message) as error:
        gguf_tokenizer(fields, tmp_path / "a.gguf")
    assert "a.gguf" in str(error.value)


@pytest.fixture(scope="session")
def pieces(tmp_path_factory):
    """The file of a SentencePiece model of byte pairs like Llama 2's."""
    folder = tmp_path_factory.mktemp("pieces")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3),
        model_prefix=str(folder / "tokenizer"),
        model_type="bpe",
        byte_fallback=True,
        vocab_size=420,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.98,
        minloglevel=2,
    )
    return folder / "tokenizer.model"


def test_a_sentencepiece_model_and_its_scores_have_its_ids(pieces):
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    numbers = range(theirs.vocab_size())
    kinds = [
        3 if theirs.is_control(i) else 2 if theirs.is_unknown(i) else 6 if theirs.is_byte(i) else 1
        for i in numbers
    ]
    fields = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [theirs.id_to_piece(i) for i in numbers],
        "tokenizer.ggml.scores": [theirs.get_score(i) for i in numbers],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    lines = [line for line in awkward_lines(random.Random(6), 250) if "\0" not in line]
    lines = [line for line in lines if "<s>" not in line and "</s>" not in line]
    of_scores = gguf_tokenizer(fields, pieces)
    (pieces.parent / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    of_model = language_tokenizer(pieces.parent)
    expected = theirs.encode(lines)
    assert of_scores.tokenize(lines).to_list() == expected
    assert of_model.tokenize(lines).to_list() == expected
    assert of_scores.special_tokens(1) == [[1], []]
    assert of_model.start_token_id == of_scores.start_token_id == 1


def test_a_sentencepiece_model_that_normalizes_is_refused(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_prefix=str(tmp_path / "tokenizer"), vocab_size=350,
        model_type="bpe", byte_fallback=True, minloglevel=2, character_coverage=0.98,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"tokenizer.model: .* normalizes texts \('nmt_nfkc'\)"):
        language_tokenizer(tmp_path)


def test_two_files_of_qwen_and_of_an_unknown_class(described, tmp_path):
    description, expected, _ = described("qwen2")
    model = description["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]), "utf-8")
    merges = "\n".join(map(" ".join, model["merges"]))
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", "utf-8")
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": TOKENS[1],
        "added_tokens_decoder": {str(each["id"]): each for each in description["added_tokens"]},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = language_tokenizer(tmp_path)
    lines = awkward_lines(random.Random(7), 150)
    assert found.tokenize(lines).to_list() == expected.tokenize(lines).to_list()
    assert found.end_token_id == found.vocabulary.index(TOKENS[1])
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "OtherTokenizer"}')
    with pytest.raises(ValueError, match="OtherTokenizer"):
        language_tokenizer(tmp_path)


FAMILY = family_named("llama")


@pytest.mark.parametrize("style", ["llama3", "mistral", "smollm2"])
def test_transformers_reads_what_is_written(style, described, tmp_path):
    transformers = pytest.importorskip("transformers")
    description, _, _ = described(style)
    (tmp_path / "given").mkdir()
    (tmp_path / "given/tokenizer.json").write_text(json.dumps(description))
    end = "</s>" if style == "mistral" else TOKENS[1]
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end}
    (tmp_path / "given/tokenizer_config.json").write_text(json.dumps(config))
    (ours,) = read_tokenizers(tmp_path / "given", FAMILY)
    assert ours.start_token_id is None
    (tmp_path / "written").mkdir()
    assert write_tokenizers({"tokenizer": ours}, tmp_path / "written", FAMILY.writer, 32) == {
        "eos_token_id": ours.end_token_id,
        "pad_token_id": ours.end_token_id,
    }
    (again,) = read_tokenizers(tmp_path / "written", FAMILY)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "written")
    assert theirs.eos_token_id == theirs.pad_token_id == ours.end_token_id
    lines = awkward_lines(random.Random(8), 100)
    expected = ours.tokenize(lines).to_list()
    assert again.tokenize(lines).to_list() == expected
    found = theirs(lines, add_special_tokens=False, split_special_tokens=False)["input_ids"]
    assert found == expected


@pytest.mark.reference
@pytest.mark.parametrize("style", PUBLISHED)
def test_published_vocabularies_on_ten_thousand_awkward_lines(style):
    description = published(style)
    ours, theirs = DescribedTokenizer(description), Tokenizer.from_str(json.dumps(description))
    check_ids(ours, theirs, awkward_lines(random.Random(1), 10_000))


@pytest.mark.reference
@pytest.mark.parametrize("style", STYLES)
def test_trained_vocabularies_on_ten_thousand_awkward_lines(style, described):
    _, ours, theirs = described(style)
    check_ids(ours, theirs, awkward_lines(random.Random(2), 10_000))


@pytest.mark.reference
@pytest.mark.parametrize("style", ["llama3", "qwen2", "smollm2", "mistral"])
def test_every_character_between_letters_digits_and_spaces(style, described):
    _, ours, theirs = described(style)
    # Runs of characters that are unassigned or for private use: one in 257.
    sparse = [*range(0x32400, 0xE0000, 257), *range(0xE1000, 0x110000, 257)]
    codes = [*range(0xD800), *range(0xE000, 0x32400), *range(0xE0000, 0xE1000), *sparse]
    lines = [f"a{c}a1{c}1 {c}!{c}\n{c}'s" for c in map(chr, codes)]
    check_ids(ours, theirs, lines, batch=4096)
