"""`kt.load` of T5 and Marian: a Translator, with the options that the files give."""

import base64
import itertools
import json
import shutil

import encoder_decoder_toys as toys
import numpy as np
import pytest
import tiny
from logged import warnings_in
from safetensors.numpy import load_file, save_file
from sentencepiece import sentencepiece_model_pb2
from weights_folders import change_json

import keras_transformers as kt
from keras_transformers.convert import save_weights
from keras_transformers.convert.families import family_named
from keras_transformers.convert.formats.tokenizer_files import read_tokenizers
from keras_transformers.families.marian.model import marian
from keras_transformers.families.t5.model import t5
from keras_transformers.tokenizers import MarianTokenizer

SHAPE = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "hidden_dim": 8}
PADDED = 64  # rows of T5's embeddings, more than its tokens


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folders of a T5 and a Marian, by family; do not change them."""
    made = tmp_path_factory.mktemp("folders")
    tokenizer = toys.t5_tokenizer(num_extra_ids=10, padded_to=PADDED)
    model = tiny.lively(t5(**(toys.T5_SIZES | {"vocabulary_size": PADDED})))
    save_weights(model, made / "t5", tokenizer, family="t5")
    files = toys.marian_folder(tmp_path_factory.mktemp("files"))
    sides = [MarianTokenizer(files, side=side) for side in ("source", "target")]
    model = marian(
        vocabulary_size=sides[0].vocabulary_size,
        intermediate_dim=8,
        max_sequence_length=12,
        **SHAPE,
    )
    save_weights(tiny.lively(model), made / "marian", *sides, family="marian")
    return {family: made / family for family in ("t5", "marian")}


@pytest.fixture
def folder_of(folders, tmp_path):
    """Copies a family's folder, to change it."""
    return lambda family: shutil.copytree(folders[family], tmp_path / family)


@pytest.mark.parametrize("family", ["t5", "marian"])
def test_a_folder_becomes_a_translator(family, folders, caplog):
    translate = kt.load(folders[family], num_beams=1, extra_length=3)
    assert isinstance(translate, kt.pipelines.Translator)
    assert translate.max_sequence_length == {"t5": 512, "marian": 12}[family]
    assert (translate.num_beams, translate.extra_length) == (1, 3)
    assert len(translate.tokenizers) == {"t5": 1, "marian": 2}[family]
    known = family_named(family)
    model = known.build(**known.read(folders[family]))
    known.fill(model, folders[family])
    wanted = kt.pipelines.Translator(
        model,
        *read_tokenizers(folders[family], known),
        max_sequence_length=translate.max_sequence_length,
        num_beams=1,
        extra_length=3,
        rules="transformers",
    )
    for variable, other in zip(translate.model.weights, wanted.model.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(variable), np.asarray(other))
    assert translate.config() == wanted.config()
    for name, tokenizer in translate.tokenizers.items():
        assert tokenizer.config() == wanted.tokenizers[name].config()
    assert not warnings_in(caplog)


@pytest.mark.parametrize("family", ["t5", "marian"])
def test_the_files_give_the_search_its_options(family, folder_of, caplog):
    folder = folder_of(family)
    change_json(folder / "config.json", num_beams=3, max_length=11, min_length=2, do_sample=False)
    translate = kt.load(folder)
    options = {"num_beams": 3, "max_length": 10, "extra_length": None, "min_length": 2}
    options |= {"rules": "transformers", "length_penalty": 1.0, "force_end": False}
    assert translate.config().items() >= options.items()
    assert kt.load(folder, num_beams=2).num_beams == 2
    assert not warnings_in(caplog)
    more = {"diversity_penalty": 3.0, "do_sample": True, "num_return_sequences": None}
    more |= {"length_penalty": 2, "forced_eos_token_id": translate.tokenizer.end_token_id}
    change_json(folder / "generation_config.json", max_new_tokens=9, max_length=50, **more)
    options = {"num_beams": 4, "max_length": 9, "length_penalty": 2, "force_end": True}
    assert kt.load(folder).config().items() >= options.items()
    assert "the search here does not support diversity_penalty=3.0, do_sample=True" in caplog.text
    change_json(folder / "generation_config.json", max_new_tokens=None)
    assert kt.load(folder).max_length == {"t5": 49, "marian": 12}[family]  # its positions


@pytest.mark.one_case
@pytest.mark.parametrize("family", ["t5", "marian"])
def test_the_files_constrain_the_texts(family, folder_of, tmp_path, caplog):
    folder = folder_of(family)
    change_json(
        folder / "generation_config.json",
        forced_bos_token_id=5,
        no_repeat_ngram_size=2,
        early_stopping=True,
        min_length=50,
        min_new_tokens=7,  # wins
        max_new_tokens=9,
        num_beams=2,
        length_penalty=2.0,
    )
    translate = kt.load(folder)
    options = {"first_token_id": 5, "no_repeat_ngram_size": 2, "early_stopping": True}
    options |= {"min_length": 8, "max_length": 9}
    assert translate.config().items() >= options.items()
    assert not warnings_in(caplog)
    found = translate._hypotheses(["a small dog", "two dogs"], 1)
    for row, length in zip(found.token_ids.numpy()[:, 0], found.lengths.numpy()[:, 0], strict=True):
        text = row[:length].tolist()
        pairs = list(itertools.pairwise([translate.target_tokenizer.start_token_id, *text]))
        assert text[0] == 5
        assert len(set(pairs)) == len(pairs)
        assert length >= 8
    again = kt.load(kt.save(translate, tmp_path / "again", format="huggingface"))
    assert again.config() == translate.config()
    written = json.loads((tmp_path / "again/generation_config.json").read_text())
    fields = {"forced_bos_token_id": 5, "no_repeat_ngram_size": 2, "early_stopping": True}
    assert written.items() >= (fields | {"min_length": 8}).items()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_beams": 0}, "num_beams=0; expected an integer from 1"),
        ({"num_beams": 2000}, "num_beams=2000; at most 1000"),
        ({"max_length": 2}, "max_length=2; expected an integer from 3"),
        ({"max_length": "long"}, "max_length='long'"),
        ({"min_length": -1}, "min_length=-1"),
        ({"length_penalty": -1.0}, "length_penalty=-1.0"),
        ({"forced_bos_token_id": "<s>"}, "forced_bos_token_id='<s>'; expected an integer from 0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size=-1; expected an integer from 0"),
        ({"early_stopping": "soon"}, "early_stopping='soon'; expected true, false or 'never'"),
        ({"forced_eos_token_id": 5, "eos_token_id": 0}, "forced_eos_token_id=5; only the end"),
        ({"eos_token_id": 9}, "eos_token_id=9, but config.json has"),
        ({"eos_token_id": [0, 1]}, r"eos_token_id=\[0, 1\], but config.json has"),
        ({"decoder_start_token_id": 5}, "decoder_start_token_id=5, but config.json has"),
    ],
)
def test_options_that_no_search_can_have_are_refused(change, message, folder_of):
    folder = folder_of("marian")
    change_json(
        folder / "config.json", decoder_start_token_id=kt.load(folder).tokenizer.pad_token_id
    )
    change_json(folder / "generation_config.json", **change)
    with pytest.raises(ValueError, match=f"generation_config.json: {message}"):
        kt.load(folder)


def test_embeddings_may_have_more_rows_than_the_vocabulary_but_not_fewer(folder_of, tmp_path):
    marian_folder, t5_folder = folder_of("marian"), folder_of("t5")
    tokens = kt.load(t5_folder).tokenizer
    assert (tokens.vocabulary_size, tokens.vocabulary[-1]) == (PADDED, f"<unused_{PADDED - 1}>")
    rows = kt.load(marian_folder).tokenizer.vocabulary_size
    tensors = load_file(marian_folder / "model.safetensors")
    for name, axis in (("model.shared.weight", 0), ("final_logits_bias", 1)):
        widths = [(0, 2 * (axis == other)) for other in range(2)]
        tensors[name] = np.pad(tensors[name], widths)
    save_file(tensors, marian_folder / "model.safetensors")
    change_json(marian_folder / "config.json", vocab_size=rows + 2, decoder_vocab_size=rows + 2)
    padded = kt.load(marian_folder)
    for tokenizer in padded.tokenizers.values():
        assert tokenizer.vocabulary[rows:] == [f"<unused_{rows}>", f"<unused_{rows + 1}>"]
        np.testing.assert_array_equal(tokenizer.detokenize([[rows, rows + 1, 0]]), [b""])
        place = tmp_path / tokenizer.side
        place.mkdir()
        tokenizer.save(place)
        loaded = type(tokenizer).load(place, **tokenizer.config())
        assert loaded.vocabulary == tokenizer.vocabulary
    more = {f"more{index}": rows + index for index in range(3)}
    change_json(marian_folder / "vocab.json", **more)
    with pytest.raises(ValueError, match=f"vocab.json has {rows + 3} tokens, but the model only"):
        kt.load(marian_folder)
    change_json(t5_folder / "tokenizer_config.json", extra_ids=PADDED)
    with pytest.raises(ValueError, match=f"{PADDED}.*{PADDED}: use"):
        kt.load(t5_folder)


@pytest.mark.parametrize(
    ("family", "file", "change", "message"),
    [
        ("t5", "config.json", {"architectures": ["T5ForTokenClassification"]}, "uses the head of"),
        ("t5", "config.json", {"num_layers": 2}, "missing from the file: .*encoder.block.1"),
        ("t5", "config.json", {"d_ff": "wide"}, "d_ff='wide'; expected an integer"),
        ("t5", "config.json", {"dropout_rate": 1.0}, "dropout_rate=1.0; expected a number"),
        ("t5", "config.json", {"feed_forward_proj": 3}, "feed_forward_proj=3; expected one of"),
        (
            "t5",
            "tokenizer_config.json",
            {"tokenizer_class": "BertTokenizer"},
            "expected one of T5Token",
        ),
        ("marian", "config.json", {"d_model": 9}, "d_model=9 is not a multiple of encoder_att"),
        ("marian", "config.json", {"pad_token_id": 3, "decoder_start_token_id": 3}, "padding is"),
        ("marian", "tokenizer_config.json", {"separate_vocabs": True}, "separate_vocabs=True; on"),
        (
            "marian",
            "tokenizer_config.json",
            {"tokenizer_class": "T5Tokenizer"},
            "expected one of Marian",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(family, file, change, message, folder_of):
    folder = folder_of(family)
    change_json(folder / file, **change)
    with pytest.raises(ValueError, match=message) as caught:
        kt.load(folder)
    assert str(folder) in str(caught.value)


def tokenizer_json(model):
    """What transformers makes of T5's SentencePiece model, and all that it saves of it."""
    found = sentencepiece_model_pb2.ModelProto.FromString(model)
    charsmap = base64.b64encode(found.normalizer_spec.precompiled_charsmap).decode()
    extra = [f"<extra_id_{number}>" for number in range(10)]
    vocabulary = [[piece.piece, piece.score] for piece in found.pieces]
    vocabulary += [[token, 0.0] for token in reversed(extra)]
    ids = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    return {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace"}],
        },
        "added_tokens": [
            {"id": ids[token], "content": token} for token in ("<pad>", "</s>", "<unk>", *extra)
        ],
        "model": {"type": "Unigram", "unk_id": 2, "vocab": vocabulary},
    }


def test_a_t5s_vocabulary_in_tokenizer_json_is_enough(folder_of):
    folder = folder_of("t5")
    before = kt.load(folder).tokenizer
    (folder / "spiece.model").unlink()
    contents = tokenizer_json(toys.t5_model())
    change_json(folder / "tokenizer.json", **contents)
    after = kt.load(folder).tokenizer
    assert after.config() == before.config()
    assert after.vocabulary == before.vocabulary
    assert after.tokenize(toys.T5_TEXTS).to_list() == before.tokenize(toys.T5_TEXTS).to_list()
    model = contents["model"]
    for change, message in (
        (
            {"normalizer": {"type": "NFC"}},
            "not a Hugging Face Unigram tokenizer .*no normalizer Precompiled",
        ),
        ({"model": {**model, "vocab": [["a", "b", "c"]]}}, "not a Hugging Face Unigram tokenizer"),
        ({"model": {**model, "vocab": model["vocab"][1:]}}, "<pad>"),
    ):
        change_json(folder / "tokenizer.json", **contents | change)
        with pytest.raises(ValueError, match=f"tokenizer.json: .*{message}"):
            kt.load(folder)


@pytest.mark.reference
def test_what_transformers_saves_of_a_t5s_tokenizer_is_enough(folder_of):
    import transformers

    folder = folder_of("t5")
    before = kt.load(folder).tokenizer
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    (folder / "spiece.model").unlink()
    theirs.save_pretrained(folder)
    after = kt.load(folder).tokenizer
    assert after.vocabulary == before.vocabulary
    assert after.tokenize(toys.T5_TEXTS).to_list() == before.tokenize(toys.T5_TEXTS).to_list()
