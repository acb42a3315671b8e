"""mT5 and UMT5 against Hugging Face's, with the random models of make_t5.py."""

import functools
import json
import runpy
from pathlib import Path

import encoder_decoder_toys as toys
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from checks import in_float64, same_but_for_rounding
from safetensors.numpy import load_file, save_file
from tiny import lively

import keras_transformers as kt
from keras_transformers.convert.families import family_named
from keras_transformers.decoding import beam_search
from keras_transformers.families.t5.model import t5

FAMILIES = Path(__file__).parents[2] / "golden" / "families"
GOLDEN = np.load(FAMILIES / "mt5.npz")
MAKER = runpy.run_path(str(FAMILIES / "make_t5.py"))
INPUTS = MAKER["inputs"]()
KINDS = tuple(MAKER["MULTILINGUAL"])
SEARCHES = {
    "greedy": {"num_beams": 1},
    "beams": {"num_beams": 3, "length_penalty": 0.0},
    "defaults": {"num_beams": 3, "rules": "transformers"},
}
BIASES = {"mt5": 2, "umt5": 5}  # the golden models have 3 + 2 layers


def config(kind):
    return {"model_type": kind, **MAKER["CONFIG"], **MAKER["MULTILINGUAL"][kind]}


def tensors(kind):
    prefix = f"{kind}/tensors/"
    names = [name for name in GOLDEN.files if name.startswith(prefix)]
    return {name.removeprefix(prefix): GOLDEN[name] for name in names}


def folder_of(kind, folder, **changes):
    """A folder as transformers writes it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(kind) | changes))
    save_file(tensors(kind), folder / "model.safetensors")
    return folder


def read(kind, folder):
    model = t5(**family_named(kind).read(folder))
    kt.convert.load_weights(model, folder)
    return model


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The models with transformers' weights, by kind; do not change them."""
    return functools.cache(lambda kind: read(kind, folder_of(kind, tmp_path_factory.mktemp(kind))))


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_transformers(loaded, kind):
    model = loaded(kind)
    logits, exact = (each(INPUTS, training=False)["logits"] for each in (model, in_float64(model)))
    same_but_for_rounding(GOLDEN[f"{kind}/logits"], logits, exact)
    assert np.ptp(GOLDEN[f"{kind}/logits"]) > 1
    biases = [layer.name for layer in model.layers if layer.name.endswith("position_bias")]
    assert len(biases) == BIASES[kind]


# Ours considers ends that transformers' does not, and so finds a better text for this UMT5.
@pytest.mark.one_case
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in KINDS for name in SEARCHES if (kind, name) != ("umt5", "beams")],
)
def test_searches_find_the_tokens_of_transformers(loaded, kind, name):
    @tf.function(autograph=False)
    def search(sources):
        step, cache = loaded(kind).start_decoding(sources)
        return beam_search(
            step,
            tf.zeros_like(sources[:, 0]),
            cache,
            end_token_id=1,
            max_length=MAKER["MAX_LENGTH"],
            growing_axis=2,
            **SEARCHES[name],
        ).token_ids[:, 0]

    wanted = GOLDEN[f"{kind}/{name}"]
    np.testing.assert_array_equal(search(INPUTS["source_token_ids"]), wanted)
    assert (GOLDEN[f"{kind}/greedy"] != GOLDEN[f"{kind}/beams"]).any()
    assert (wanted == 1).any()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_config_come_back(loaded, kind, tmp_path):
    family, model = family_named(kind), loaded(kind)
    family.save(model, tmp_path / "copy.safetensors")
    found = load_file(tmp_path / "copy.safetensors")
    assert set(found) == set(tensors(kind))
    for name, tensor in tensors(kind).items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)
    arguments = family.read(folder_of(kind, tmp_path))
    assert not arguments["tied_logits"]
    assert arguments.get("shared_position_bias", True) == (kind == "mt5")
    family.save_config(model, tmp_path / "copy.json")
    assert family.read(tmp_path / "copy.json") == arguments
    assert config(kind).items() <= json.loads((tmp_path / "copy.json").read_text()).items()


def test_an_mt5_has_logits_of_its_own_whatever_the_field_says(tmp_path):
    """transformers 5 writes tie_word_embeddings=true for all of them."""
    folder = folder_of("mt5", tmp_path, tie_word_embeddings=True)
    logits = read("mt5", folder)(INPUTS, training=False)["logits"]
    np.testing.assert_allclose(logits, GOLDEN["mt5/logits"], atol=1e-4)
    stored = tensors("mt5")
    del stored["lm_head.weight"]
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(ValueError, match="missing from the file: lm_head.weight"):
        read("mt5", folder)


@pytest.mark.parametrize(
    ("kind", "weights", "missing"),
    [
        ("umt5", "mt5", r"decoder\.block\.1\.layer\.0\.SelfAttention\.relative_attention_bias"),
        ("mt5", "umt5", r"not used .*block\.1\.layer\.0\.SelfAttention\.relative_attention_bias"),
    ],
)
def test_weights_of_the_other_are_refused(kind, weights, missing, tmp_path):
    folder = folder_of(kind, tmp_path)
    save_file(tensors(weights), folder / "model.safetensors")
    with pytest.raises(ValueError, match=missing):
        read(kind, folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "t5"}, "model_type is 't5'; expected 'mt5'"),
        ({"feed_forward_proj": "gated-elu"}, "feed_forward_proj='gated-elu'; expected one of"),
        ({"decoder_start_token_id": 2}, "decoder_start_token_id=2; only 0 is supported"),
        ({"d_kv": None}, "has no field 'd_kv'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    kept = {key: value for key, value in (config("mt5") | change).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=message):
        family_named("mt5").read(tmp_path)


def translator(kind):
    """A tiny one whose vocabulary pads its matrices, as 250,112 rows do for 250,100 tokens."""
    tokenizer = toys.t5_tokenizer(
        num_extra_ids=0 if kind == "mt5" else 10,
        padded_to=48,
        kind=kt.tokenizers.MT5Tokenizer if kind == "mt5" else kt.tokenizers.T5Tokenizer,
    )
    shape = toys.T5_SIZES | {"vocabulary_size": 48, "num_encoder_layers": 2, "tied_logits": False}
    model = lively(t5(**shape, gated_feed_forward=True, shared_position_bias=kind == "mt5"))
    return kt.pipelines.Translator(
        model, tokenizer, max_sequence_length=12, max_length=6, rules="transformers"
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Pipelines and the folders of `kt.save`, by kind."""

    @functools.cache
    def write(kind):
        made, folder = translator(kind), tmp_path_factory.mktemp("written") / kind
        return made, kt.save(made, folder, format="huggingface")

    return write


@pytest.mark.one_case
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_translator_comes_back(written, kind):
    made, folder = written(kind)
    fields = json.loads((folder / "config.json").read_text())
    assert fields["architectures"] == [f"{kind.upper()}ForConditionalGeneration"]
    assert fields["model_type"] == kind
    again = kt.load(folder)
    assert type(again.tokenizer) is type(made.tokenizer)
    assert again.config() == made.config()
    assert again(list(toys.T5_TEXTS)) == made(list(toys.T5_TEXTS))
    attention = again.attend(tf.constant(["a small dog"]), tf.constant(["two"]))["attention"]
    np.testing.assert_allclose(np.sum(attention, -1), 1, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("mt5", marks=pytest.mark.slow), "umt5"])
def test_its_export_answers_alike(written, kind, tmp_path):
    made, texts = written(kind)[0], list(toys.T5_TEXTS[:4])
    folder = kt.export(made, tmp_path / "export", examples=texts[:2])
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    found = signature(text=tf.constant(texts))["translation"].numpy()
    assert [text.decode() for text in found] == [each.text for each in made(texts)]


def test_steps_with_fixed_shapes_give_the_whole_sequences_logits(loaded):
    """Beams are rows of one sentence: the bias of later layers must not count them."""
    for kind in KINDS:
        step, cache = loaded(kind).start_decoding(INPUTS["source_token_ids"], max_length=6)
        cache = tf.nest.map_structure(lambda leaf: tf.repeat(leaf, 3, axis=0), cache)
        targets = np.repeat(INPUTS["target_token_ids"], 3, 0)
        for index in range(6):
            logits, cache = step(tf.constant(targets[:, index]), tf.constant(index), cache)
            wanted = np.repeat(GOLDEN[f"{kind}/logits"][:, index], 3, 0)
            np.testing.assert_allclose(logits, wanted, atol=1e-4)


def test_a_vocabulary_that_does_not_belong_to_the_weights_is_refused(written, tmp_path):
    made, _ = written("mt5")
    folder = kt.save(made, tmp_path / "mt5", format="huggingface")
    fields = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(fields | {"extra_ids": 100}))
    with pytest.raises(ValueError, match="33 tokens and 100 extra ids, but the model has 48"):
        kt.load(folder)


EXTRA = ("The <extra_id_0> dog runs <extra_id_1> the shore", "a b<extra_id_0>c", "<extra_id_1>")


@pytest.fixture(scope="module")
def with_extra_ids(tmp_path_factory):
    """A folder whose SentencePiece model has the extra ids, after a space, as mT5's has."""
    folder = tmp_path_factory.mktemp("extra")
    with (folder / "spiece.model").open("wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(toys.T5_LINES),
            model_writer=writer,
            user_defined_symbols="▁<extra_id_1>,▁<extra_id_0>",
            vocab_size=36,
            hard_vocab_limit=False,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            minloglevel=2,
        )
    config = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_extra_ids_are_pieces_of_the_model(with_extra_ids):
    tokenizer = kt.tokenizers.MT5Tokenizer(with_extra_ids)
    pieces = [tokenizer.vocabulary[piece] for piece in tokenizer.tokenize(EXTRA).values.numpy()]
    assert [piece for piece in pieces if "extra" in piece] == [
        *("▁<extra_id_0>", "▁<extra_id_1>"),
        "▁<extra_id_1>",
    ]
    back = tokenizer.detokenize(tokenizer.tokenize(["two <extra_id_0> dogs"])).numpy()
    assert back.tolist() == [b"two <extra_id_0> dogs"]


@pytest.mark.reference
def test_their_ids_equal_transformers(with_extra_ids):
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(with_extra_ids)
    ours = kt.tokenizers.MT5Tokenizer(with_extra_ids)
    for text in (*EXTRA, *toys.T5_TEXTS):
        assert ours.tokenize([text], add_end=True).to_list()[0] == theirs(text)["input_ids"], text


@pytest.mark.reference
@pytest.mark.parametrize("kind", KINDS)
def test_the_frozen_outputs_are_transformers_own(kind):
    for key, value in MAKER["outputs"](kind).items():
        atol = 1e-5 * np.abs(value).max()
        np.testing.assert_allclose(GOLDEN[f"{kind}/{key}"], value, atol=atol, err_msg=key)


@pytest.mark.reference
@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_what_we_write_and_we_what_it_writes(written, kind, tmp_path):
    import torch
    import transformers

    made, folder = written(kind)
    start = kind.upper()
    theirs, report = getattr(transformers, f"{start}ForConditionalGeneration").from_pretrained(
        folder, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    # AutoTokenizer reads only tokenizer.json for a UMT5.
    tokenizer = transformers.T5Tokenizer.from_pretrained(folder)
    texts = list(toys.T5_TEXTS)
    for text in texts:
        wanted = tokenizer(text)["input_ids"]
        assert made.tokenizer.tokenize([text], add_end=True).to_list()[0] == wanted, text
    sources = np.array([tokenizer(texts[1])["input_ids"]])
    targets = np.array([[0, 7, 5, 9, 4, 8, 6, 11]])
    given = {"input_ids": torch.tensor(sources), "decoder_input_ids": torch.tensor(targets)}
    with torch.no_grad():
        wanted = theirs.eval()(**given).logits.numpy()
    ours = {"source_token_ids": sources.astype("int32"), "target_token_ids": targets}
    found = np.asarray(made.model(ours, training=False)["logits"])
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again = kt.load(tmp_path, max_sequence_length=12, max_length=6, num_beams=made.num_beams)
    assert [each.text for each in again(texts)] == [each.text for each in made(texts)]
