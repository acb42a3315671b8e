"""T5 1.0 and 1.1 against Hugging Face's, with the random models of make_t5.py."""

import functools
import json
import runpy
from pathlib import Path

import encoder_decoder_toys as toys
import numpy as np
import pytest
import tensorflow as tf
from checks import in_float64, same_but_for_rounding
from safetensors.numpy import load_file, save_file

import keras_transformers as kt
from keras_transformers.convert import save_weights
from keras_transformers.decoding import beam_search
from keras_transformers.families.t5.files import FAMILY as T5
from keras_transformers.families.t5.model import t5
from keras_transformers.families.transformer.model import transformer

FAMILIES = Path(__file__).parents[2] / "golden" / "families"
GOLDEN = np.load(FAMILIES / "t5.npz")
MAKER = runpy.run_path(str(FAMILIES / "make_t5.py"))
INPUTS = MAKER["inputs"]()
KINDS = tuple(MAKER["KINDS"])
SEARCHES = {
    "greedy": {"num_beams": 1},
    "beams": {"num_beams": 3, "length_penalty": 0.0},
    "defaults": {"num_beams": 3, "rules": "transformers"},
}


def config(kind):
    return {"model_type": "t5", **MAKER["CONFIG"], **MAKER["KINDS"][kind]}


def tensors(kind):
    prefix = f"{kind}/tensors/"
    names = [name for name in GOLDEN.files if name.startswith(prefix)]
    return {name.removeprefix(prefix): GOLDEN[name] for name in names}


def folder_of(kind, folder, **changes):
    """A folder as transformers writes it."""
    (folder / "config.json").write_text(json.dumps(config(kind) | changes))
    save_file(tensors(kind), folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The models with transformers' weights, by kind; do not change them."""

    @functools.cache
    def model(kind):
        folder = folder_of(kind, tmp_path_factory.mktemp(kind))
        found = t5(**T5.read(folder))
        kt.convert.load_weights(found, folder)
        return found

    return model


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_transformers(loaded, kind):
    logits, exact = (
        model(INPUTS, training=False)["logits"]
        for model in (loaded(kind), in_float64(loaded(kind)))
    )
    same_but_for_rounding(GOLDEN[f"{kind}/logits"], logits, exact)
    assert np.ptp(GOLDEN[f"{kind}/logits"]) > 1


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("t5", name) for name in SEARCHES),
        *(("t5_v1_1", name) for name in ("greedy", "beams")),
        pytest.param("t5_v1_1", "defaults", marks=pytest.mark.slow),
    ],
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


@pytest.mark.slow
def test_on_jax_the_same_numbers_without_tensorflow(on_jax, tmp_path):
    folder = folder_of("t5_v1_1", tmp_path)
    on_jax(f"""
import runpy, numpy as np, keras_transformers as kt
from keras_transformers.families.t5.files import FAMILY as T5
from keras_transformers.families.t5.model import t5
inputs = runpy.run_path({str(FAMILIES / "make_t5.py")!r})["inputs"]()
golden = np.load({str(FAMILIES / "t5.npz")!r})["t5_v1_1/logits"]
model = t5(**T5.read({str(folder)!r}))
kt.convert.load_weights(model, {str(folder)!r})
logits = model.predict(inputs, verbose=0)["logits"]
np.testing.assert_allclose(logits, golden, atol=2e-5 * np.abs(golden).max())
step, cache = model.start_decoding(inputs["source_token_ids"], max_length=4)
for index in range(4):
    logits, cache = step(inputs["target_token_ids"][:, index], index, cache)
    np.testing.assert_allclose(logits, golden[:, index], atol=2e-5 * np.abs(golden).max())
""")


@pytest.mark.parametrize("kind", KINDS)
def test_saving_gives_the_same_tensors(loaded, kind, tmp_path):
    T5.save(loaded(kind), tmp_path / "copy.safetensors")
    found = load_file(tmp_path / "copy.safetensors")
    assert set(found) == set(tensors(kind))
    for name, tensor in tensors(kind).items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_comes_back(loaded, kind, tmp_path):
    arguments = T5.read(folder_of(kind, tmp_path))
    assert (arguments["num_encoder_layers"], arguments["num_decoder_layers"]) == (3, 2)
    assert arguments["tied_logits"] == (kind == "t5")
    T5.save_config(loaded(kind), tmp_path / "copy.json")
    assert T5.read(tmp_path / "copy.json") == arguments
    written = json.loads((tmp_path / "copy.json").read_text())
    assert config(kind).items() <= written.items()
    assert written["tie_word_embeddings"] == (kind == "t5")


def test_what_files_leave_out_or_have_too_much(tmp_path):
    folder = folder_of("t5", tmp_path, num_decoder_layers=None)
    assert T5.read(folder)["num_decoder_layers"] == 3
    # transformers 5 calls version 1.1 tied, too.
    changed = {"tie_word_embeddings": True, "scale_decoder_outputs": False}
    assert not T5.read(folder_of("t5_v1_1", tmp_path, **changed))["tied_logits"]
    folder = folder_of("t5", tmp_path)
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    shared = tensors("t5")["shared.weight"]
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    copied = tensors("t5") | dict.fromkeys(copies, shared) | {unused: np.ones((8, 2), "float32")}
    save_file(copied, tmp_path / "model.safetensors")
    model = t5(**T5.read(folder))
    kt.convert.load_weights(model, folder)
    np.testing.assert_array_equal(model.get_layer("token_embedding").embeddings, shared)
    save_file(copied | {"lm_head.weight": shared + 1}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"lm_head.weight.*shared.weight,.*mod"):
        kt.convert.load_weights(model, folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mt5"}, "model_type is 'mt5'; expected 't5'"),
        (
            {"feed_forward_proj": "gated-elu"},
            "feed_forward_proj='gated-elu'; expected one of gated-g",
        ),
        ({"pad_token_id": 3}, "pad_token_id=3; only 0 is supported"),
        ({"decoder_start_token_id": 2}, "decoder_start_token_id=2; only 0 is supported"),
        ({"d_kv": None}, "has no field 'd_kv'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    kept = {key: value for key, value in (config("t5") | change).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=message):
        T5.read(tmp_path)


def test_heads_may_be_wider_or_narrower_than_the_model(tmp_path):
    """T5 1.1 Small has six heads of 64, and 512 is no multiple of 6."""
    arguments = T5.read(folder_of("t5_v1_1", tmp_path, d_model=512, num_heads=6, d_kv=64))
    shape = (arguments["hidden_dim"], arguments["num_heads"], arguments["head_dim"])
    assert shape == (512, 6, 64)


def test_tensors_that_do_not_fit_are_all_listed(loaded, tmp_path):
    folder_of("t5", tmp_path)
    wrong = tensors("t5")
    wrong["more"] = wrong.pop("encoder.final_layer_norm.weight")
    wrong["shared.weight"] = wrong["shared.weight"][:-1]
    save_file(wrong, tmp_path / "model.safetensors")
    model = t5(**T5.read(tmp_path))
    before = model.get_weights()
    listed = (
        r"missing from the file: encoder.final_layer_norm.weight.* of another shape: shared.weight "
        r"is \(49, 16\).* not used .*: more"
    )
    with pytest.raises(ValueError, match=listed):
        kt.convert.load_weights(model, tmp_path)
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="missing from the file: .*wi_1.*lm_head"):
        kt.convert.load_weights(loaded("t5_v1_1"), folder_of("t5", tmp_path))


def test_what_is_no_t5_is_refused(tmp_path):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    other = transformer(vocabulary_size=9, hidden_dim=4, intermediate_dim=4, **sizes)
    with pytest.raises(ValueError, match="'transformer'.*T5:.*encoder_pos"):
        T5.save(other, tmp_path / "model.safetensors")
    relative = transformer(
        vocabulary_size=9, hidden_dim=4, intermediate_dim=4, positions="relative", **sizes
    )
    with pytest.raises(ValueError, match="'transformer'.*T5: block.norm.*'layer'"):
        T5.save_config(relative, tmp_path / "config.json")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder that we write, and its model."""
    folder = tmp_path_factory.mktemp("written") / "t5"
    tokenizer = toys.t5_tokenizer(num_extra_ids=10, padded_to=128)
    model = t5(**(toys.T5_SIZES | {"vocabulary_size": 128}), tied_logits=False)
    save_weights(model, folder, tokenizer, family="t5")
    return folder, model


def test_a_folder_comes_back(written):
    folder, model = written
    translate = kt.load(folder, max_sequence_length=9, num_beams=1)
    tokenizer = translate.tokenizer
    assert (tokenizer.num_extra_ids, tokenizer.vocabulary_size) == (10, 128)
    for one, other in zip(translate.model.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert translate("a dog")


def test_a_vocabulary_that_does_not_belong_to_the_weights_is_refused(written, tmp_path):
    model = written[1]
    save_weights(model, tmp_path, toys.t5_tokenizer(num_extra_ids=10), family="t5")
    for bad in ("many", -1, True, 10**9):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_ids": bad}))
        with pytest.raises(ValueError, match=f"tokenizer_config.json: extra_ids={bad!r}; expected"):
            kt.load(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match="33 tokens.*100 extra.*128"):
        kt.load(tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize("kind", KINDS)
def test_the_frozen_outputs_are_transformers_own(kind):
    for key, value in MAKER["outputs"](kind).items():
        atol = 1e-5 * np.abs(value).max()
        np.testing.assert_allclose(GOLDEN[f"{kind}/{key}"], value, atol=atol, err_msg=key)


@pytest.mark.reference
@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_what_we_write(loaded, kind, tmp_path):
    import torch
    import transformers

    T5.save(loaded(kind), tmp_path / "model.safetensors")
    T5.save_config(loaded(kind), tmp_path / "config.json")
    theirs, report = transformers.T5ForConditionalGeneration.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    given = {name: torch.tensor(array).long() for name, array in INPUTS.items()}
    sources = given["source_token_ids"]
    with torch.no_grad():
        logits = theirs.eval()(
            input_ids=sources,
            attention_mask=(sources != 0).long(),
            decoder_input_ids=given["target_token_ids"],
        ).logits.numpy()
    wanted = GOLDEN[f"{kind}/logits"]
    np.testing.assert_allclose(logits, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.reference
def test_we_read_what_transformers_writes(tmp_path):
    for kind in KINDS:
        MAKER["model"](kind).save_pretrained(tmp_path / kind)
        model = t5(**T5.read(tmp_path / kind))
        kt.convert.load_weights(model, tmp_path / kind)
        logits = np.asarray(model(INPUTS, training=False)["logits"])
        wanted = GOLDEN[f"{kind}/logits"]
        np.testing.assert_allclose(logits, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.reference
def test_transformers_tokenizes_alike_with_the_folder_that_we_write(written):
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(written[0])
    ours = kt.load(written[0]).tokenizer
    for text in toys.T5_TEXTS:
        assert ours.tokenize([text], add_end=True).to_list()[0] == theirs(text)["input_ids"], text
