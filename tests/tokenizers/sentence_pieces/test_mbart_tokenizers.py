"""The tokenizers of mBART and mBART-50: their ids, languages and files."""

import json

import m2m_100_toy
import mbart_toy as toy
import pytest

from keras_transformers.convert.families import family_named, tokenizer_writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.tokenizer_files import read_tokenizers, write_tokenizers
from keras_transformers.convert.formats.tokenizer_json import decoder_of
from keras_transformers.data.translation import encode_pairs
from keras_transformers.families.mbart.files import FAMILY as MBART
from keras_transformers.tokenizers.sentence_pieces.mbart import MBART_50_LANGUAGES, MBART_LANGUAGES

CONFIG = {
    "model_type": "mbart",
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "d_model": 16,
    "encoder_ffn_dim": 12,
    "max_position_embeddings": 20,
    "pad_token_id": 1,
}
NUM_PIECES = 250_000  # of the real models


@pytest.fixture(scope="module", params=toy.CLASSES)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind, tmp_path_factory):
    return toy.tokenizer(kind, tmp_path_factory.mktemp(kind))


def read(kind, folder, *, config=None, generation=None, **told):
    """The tokenizer of a folder with these fields."""
    toy.vocabulary_folder(kind, folder)
    size = {"mbart": 77, "mbart_50": 104}[kind]
    files = {"config": {**CONFIG, "vocab_size": size, **(config or {})}}
    files["tokenizer_config"] = {"tokenizer_class": toy.CLASSES[kind].__name__, **told}
    files["generation_config"] = generation or {}
    for name, fields in files.items():
        (folder / f"{name}.json").write_text(json.dumps(fields))
    return read_tokenizers(Folder(folder), MBART)[0]


def test_real_languages_have_their_own_ids():
    real = {"en_XX": 250_004, "ro_RO": 250_020, "zh_CN": 250_025}
    for code, token_id in real.items():
        assert NUM_PIECES + 1 + MBART_LANGUAGES.index(code) == token_id
    assert (len(set(MBART_LANGUAGES)), len(set(MBART_50_LANGUAGES))) == (25, 52)
    assert MBART_50_LANGUAGES[:25] == MBART_LANGUAGES
    sizes = [NUM_PIECES + 2 + len(codes) for codes in (MBART_LANGUAGES, MBART_50_LANGUAGES)]
    assert sizes == [250_027, 250_054]


def test_languages_stand_where_the_models_expect_them(kind, tokenizer):
    source, target = (tokenizer.languages[code] for code in (toy.SOURCE, toy.TARGET))
    text, *_ = tokenizer.tokenize(["a small dog"]).to_list()
    ids = tokenizer.tokenize(["a small dog"], add_start=True, add_end=True).to_list()[0]
    if kind == "mbart":
        assert tokenizer.special_tokens(1) == [[], [2, source]]
        assert ids == [target, *text, 2, target]
        assert tokenizer.start_token_id == target
        assert tokenizer.between(None, toy.SOURCE).start_token_id == source
    else:
        assert tokenizer.special_tokens(1) == [[source], [2]]
        assert ids == [2, target, *text, 2]
        assert tokenizer.start_token_id == 2
    assert tokenizer.detokenize([ids]).numpy()[0] == b"a small dog"
    assert tokenizer.vocabulary[-1] == "<mask>"
    assert tokenizer.vocabulary[target] == toy.TARGET


def test_a_saved_tokenizer_comes_back(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    again = type(tokenizer).load(tmp_path, **tokenizer.config())
    assert again.config() == tokenizer.config()
    assert again.start_token_id == tokenizer.start_token_id


def test_folders_name_the_kind_and_the_languages(kind, tokenizer, tmp_path):
    decoder = decoder_of(tokenizer)
    special = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    special |= {"additional_special_tokens": [*tokenizer.languages], "sp_model_kwargs": {}}
    special |= {"mask_token": {"content": "<mask>", "lstrip": True}}
    languages = {"src_lang": toy.SOURCE, "tgt_lang": toy.TARGET}
    found = read(kind, tmp_path, added_tokens_decoder=decoder, **special, **languages)
    assert found.config() == tokenizer.config()
    field = {"mbart": "decoder_start_token_id", "mbart_50": "forced_bos_token_id"}[kind]
    start = {field: tokenizer.languages[toy.TARGET]}
    for place in ("config", "generation"):
        found = read(kind, tmp_path, src_lang=toy.SOURCE, **{place: start})
        assert found.config() == tokenizer.config()
    assert read(kind, tmp_path).target_language is None
    # As in the first folders of mBART-50.
    config = {"tokenizer_class": f"{toy.CLASSES[kind].__name__}Fast"}
    assert type(read(kind, tmp_path, config=config, tokenizer_class=None)) is toy.CLASSES[kind]


def test_a_template_for_one_language_is_not_compared(tmp_path):
    """tokenizer.json adds the language that was last set."""
    special = {"en_XX": {"id": "en_XX", "ids": [54], "tokens": ["en_XX"]}}
    steps = [
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "en_XX", "type_id": 0}},
    ]
    template = {"type": "TemplateProcessing", "single": steps, "pair": steps}
    contents = {"post_processor": {**template, "special_tokens": special}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(contents))
    assert read("mbart", tmp_path, tokenizer_class=None).source_language is None


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("mbart", {"config": {"pad_token_id": 3}}, "config.json: pad_token_id=3, .* pads with 1"),
        ("mbart", {"tgt_lang": "xx"}, "target_language='xx': expected 'ar_AR'"),
        ("mbart", {"config": {"vocab_size": 60}}, "has 77 tokens, but the model only 60: use"),
        (
            "mbart",
            {"config": {"decoder_start_token_id": 2}},
            r"/config.json: decoder_start_token_id=2; with MBartTokenizer expected 51 \(ar_AR\)",
        ),
        (
            "mbart",
            {"generation": {"decoder_start_token_id": 53}, "tgt_lang": "en_XX"},
            r"generation_config.json: decoder_start_token_id=53; .* expected 54 \(en_XX\): correct",
        ),
        (
            "mbart_50",
            {"config": {"decoder_start_token_id": 54}},
            r"decoder_start_token_id=54; with MBart50Tokenizer expected 2 \(</s>\): correct",
        ),
        (
            "mbart_50",
            {"config": {"forced_bos_token_id": [0]}},
            r"forced_bos_token_id=\[0\]; with MBart50Tokenizer expected 51 .* another language",
        ),
        ("mbart", {"tokenizer_class": "NllbTokenizer"}, "expected one of MBartTokenizer, MBart50"),
    ],
)
def test_what_does_not_fit_is_refused(kind, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(kind, tmp_path, **options)


@pytest.mark.reference
def test_ids_are_those_of_transformers(kind, tokenizer, tmp_path):
    import transformers

    writer = tokenizer_writer(family_named("mbart"), type(tokenizer).__name__)
    write_tokenizers({"tokenizer": tokenizer}, tmp_path, writer, 20)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__ == type(tokenizer).__name__
    assert (theirs.src_lang, theirs.tgt_lang) == (toy.SOURCE, toy.TARGET)
    texts = [text.rstrip() for text in m2m_100_toy.TEXTS[:4]]  # not the names of special tokens
    before, after = tokenizer.special_tokens(1)
    for text, ids in zip(texts, tokenizer.tokenize(texts).to_list(), strict=True):
        assert theirs(text)["input_ids"] == [*before, *ids, *after]
        labels = tokenizer.tokenize([text], add_start=True, add_end=True).to_list()[0]
        assert theirs(text_target=text)["input_ids"] == labels[1:]
    ligature = [*before, *tokenizer.tokenize(["ﬁsh"]).to_list()[0], *after]
    assert (theirs("ﬁsh")["input_ids"] == ligature) == (kind == "mbart_50")  # see MBartTokenizer
    assert len(theirs) == tokenizer.vocabulary_size
    for token_id, token in enumerate(tokenizer.vocabulary):
        assert theirs.convert_tokens_to_ids(token) == token_id


def test_a_text_of_nothing_but_its_language_is_empty(tokenizer):
    pairs = [("a fish", "a fish"), ("a fish", " "), ("", "a fish"), ("a", "fish")]
    encoded = encode_pairs(pairs, tokenizer, max_sequence_length=20)
    assert (encoded.indices.tolist(), encoded.report.num_empty) == ([0, 3], 2)
