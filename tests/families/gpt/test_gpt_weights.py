"""GPT and GPT-2 against Hugging Face's, with the random models of tests/golden/make_gpt.py."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import tiny
from safetensors.numpy import load_file, save_file

import keras_transformers as kt
from keras_transformers.decoding import greedy_search
from keras_transformers.families.gpt.files import FAMILY as GPT2
from keras_transformers.families.gpt.model import gpt
from keras_transformers.families.openai_gpt.files import FAMILY as GPT
from keras_transformers.heads import causal_classifier
from keras_transformers.training.losses import token_crossentropy

GOLDEN = Path(__file__).parents[2] / "golden"
FAMILIES = {"openai-gpt": GPT, "gpt2": GPT2}
KINDS = tuple(FAMILIES)


@pytest.fixture(scope="module")
def maker():
    return runpy.run_path(str(GOLDEN / "make_gpt.py"))


@pytest.fixture(scope="module")
def golden():
    return np.load(GOLDEN / "gpt_random.npz")


def our_model(maker, kind, **changes):
    config = maker["CONFIG"]
    return gpt(
        **{
            "vocabulary_size": config["vocab_size"],
            "num_layers": config["n_layer"],
            "num_heads": config["n_head"],
            "hidden_dim": config["n_embd"],
            "max_sequence_length": config["n_positions"],
            "norm_position": "pre" if kind == "gpt2" else "post",
        }
        | changes
    )


@pytest.fixture(scope="module")
def loaded(maker):
    """Both models with transformers' weights; do not modify them."""
    models = {kind: our_model(maker, kind) for kind in KINDS}
    for kind, model in models.items():
        kt.convert.load_weights(model, maker["file_of"](kind))
    return models


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_loss_equal_transformers(maker, golden, loaded, kind):
    ids = maker["token_ids"]()
    logits = loaded[kind]({"token_ids": ids}, training=False)["logits"]
    np.testing.assert_allclose(logits, golden[f"{kind}/logits"], atol=2e-5)
    assert np.ptp(golden[f"{kind}/logits"]) > 1
    loss = np.mean(token_crossentropy(ids[:, 1:], logits[:, :-1]))
    np.testing.assert_allclose(loss, golden[f"{kind}/loss"], atol=1e-5)


def test_greedy_search_goes_on_as_transformers_does(maker, golden, loaded):
    prompts = maker["token_ids"]()[:, :4]
    found = greedy_search(
        *loaded["gpt2"].start_decoding(prompts), end_token_id=None, max_length=8, growing_axis=2
    )
    np.testing.assert_array_equal(found.token_ids[:, 0], golden["gpt2/greedy"])


@pytest.mark.slow
def test_on_jax_the_same_numbers_without_tensorflow(on_jax):
    on_jax(f"""
import runpy, keras, numpy as np, keras_transformers as kt
from keras_transformers.families.gpt.model import gpt
from keras_transformers.heads import causal_classifier
golden, folder = np.load({str(GOLDEN / "gpt_random.npz")!r}), {str(GOLDEN)!r}
ids = runpy.run_path(folder + "/make_gpt.py")["token_ids"]()
shape = dict(vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=16, max_sequence_length=20)
model = gpt(**shape)
kt.convert.load_weights(model, folder + "/gpt2_random.safetensors")
logits = model.predict({{"token_ids": ids}}, verbose=0)["logits"]
np.testing.assert_allclose(logits, golden["gpt2/logits"], atol=2e-5)
step, last, cache = model.start_decoding(ids[:, :4])
for index in range(8):
    logits, cache = step(last, index, cache)
    last = keras.ops.argmax(logits, axis=-1)
    np.testing.assert_array_equal(last, golden["gpt2/greedy"][:, index])
packed = causal_classifier(gpt(**shape, separate_documents=True), 2)
inputs = dict(token_ids=ids, document_ids=np.repeat([[0] * 5 + [1] * 6], 3, axis=0),
              padding_mask=np.ones((3, 11), bool))
assert packed(inputs)["logits"].shape == (3, 2)
""")


@pytest.mark.parametrize("kind", KINDS)
def test_saving_gives_the_same_file(maker, loaded, kind, tmp_path):
    FAMILIES[kind].save(loaded[kind], tmp_path / "copy.safetensors")
    expected, found = load_file(maker["file_of"](kind)), load_file(tmp_path / "copy.safetensors")
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_the_forms_that_files_have(maker, loaded, kind, tmp_path):
    """The same weights without a head's prefix, with causal masks and with the tied copy."""
    tensors = load_file(maker["file_of"](kind))
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    bare["h.0.attn.bias"] = np.ones((1, 1, 20, 20), "float32")
    bare["h.0.attn.masked_bias"] = np.array(-1e4, "float32")
    save_file(bare, tmp_path / "bare.safetensors")
    embeddings = next(
        t
        for name, t in tensors.items()
        if name.endswith(("wte.weight", "s_embed.weight")) and t.shape[0] == 50
    )
    save_file(tensors | {"lm_head.weight": embeddings}, tmp_path / "tied.safetensors")
    for name in ("bare", "tied"):
        model = our_model(maker, kind)
        kt.convert.load_weights(model, tmp_path / f"{name}.safetensors")
        for one, other in zip(model.get_weights(), loaded[kind].get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
    save_file(tensors | {"lm_head.weight": embeddings + 1}, tmp_path / "untied.safetensors")
    with pytest.raises(ValueError, match=r"lm_head.weight differs from transformer.*_?e"):
        kt.convert.load_weights(our_model(maker, kind), tmp_path / "untied.safetensors")


def test_what_does_not_fit_is_refused_and_changes_nothing(maker, loaded, tmp_path):
    file = maker["file_of"]("gpt2")
    model = our_model(maker, "gpt2", num_layers=3)
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"transformer.h.2.attn.c_attn"):
        kt.convert.load_weights(model, file)
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match=r"not used .*: transformer.h.1.attn.c_attn.bias, "):
        kt.convert.load_weights(our_model(maker, "gpt2", num_layers=1), file)
    with pytest.raises(ValueError, match=r"wte.weight is \(50, 16\), .* needs \(50, 32\)"):
        kt.convert.load_weights(our_model(maker, "gpt2", hidden_dim=32), file)
    with pytest.raises(ValueError, match=r"missing .*transformer.tokens_embed.weight"):
        kt.convert.load_weights(our_model(maker, "openai-gpt"), file)
    tensors = load_file(file)
    save_file(tensors | {"score.weight": np.ones((2, 16), "float32")}, tmp_path / "more")
    with pytest.raises(ValueError, match=r"not used .*: score.weight"):
        kt.convert.load_weights(our_model(maker, "gpt2"), tmp_path / "more")
    kt.convert.load_weights(our_model(maker, "gpt2"), tmp_path / "more", ignore=["score.*"])
    with pytest.raises(ValueError, match="'logits'.*Face's GPT"):
        kt.convert.load_weights(causal_classifier(our_model(maker, "gpt2"), 2), file)
    with pytest.raises(ValueError, match="'bert_tiny' is not a GPT-2: .* no layer final_norm"):
        GPT2.save(kt.create_model("bert_tiny", vocabulary_size=5), tmp_path / "bert")


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_round_trips(maker, loaded, kind, tmp_path):
    FAMILIES[kind].save_config(loaded[kind], tmp_path / "config.json")
    shape = FAMILIES[kind].read(tmp_path)
    model = gpt(**shape)
    assert [w.shape for w in model.weights] == [w.shape for w in loaded[kind].weights]
    assert shape["norm_epsilon"] == 1e-5
    assert shape["activation"] == "gelu_approximate"
    assert ("final_norm" in {layer.name for layer in model.layers}) == (kind == "gpt2")


def test_a_folder_has_the_tokenizers_files_and_its_special_tokens(tmp_path):
    written = tiny.pipeline("generation")
    tokenizer = written.tokenizer
    kt.convert.save_weights(written.model, tmp_path / "gpt", tokenizer, family="gpt2")
    config = json.loads((tmp_path / "gpt/config.json").read_text())
    assert config["bos_token_id"] == tokenizer.start_token_id
    assert config["eos_token_id"] == tokenizer.end_token_id
    model, again = kt.convert.load_language_model(weights=tmp_path / "gpt")
    assert again.vocabulary_size == tokenizer.vocabulary_size
    for one, other in zip(model.get_weights(), written.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    small = gpt(vocabulary_size=7, num_layers=1, num_heads=2, hidden_dim=8)
    with pytest.raises(ValueError, match=f"has {tokenizer.vocabulary_size} tokens, .* embeds 7"):
        kt.convert.save_weights(small, tmp_path / "small", tokenizer, family="gpt2")
    with pytest.raises(ValueError, match="family='gpt3': use"):
        kt.convert.save_weights(written.model, tmp_path / "gpt", tokenizer, family="gpt3")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"add_cross_attention": True}, "add_cross_attention=True; only False is supported"),
        ({"model_type": "bert"}, "model_type is 'bert'; expected 'gpt2'"),
        ({"activation_function": "elu"}, "activation_function='elu'; expected one of gelu"),
        ({"scale_attn_weights": False}, "scale_attn_weights=False; only True is supported"),
        ({"scale_attn_by_inverse_layer_idx": True}, "_idx=True; only False is supported"),
        ({"n_layer": None}, "no field 'n_layer'"),
    ],
)
def test_a_configuration_of_something_else_is_refused(loaded, tmp_path, change, message):
    GPT2.save_config(loaded["gpt2"], tmp_path / "config.json")
    config = json.loads((tmp_path / "config.json").read_text()) | change
    kept = {name: value for name, value in config.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=message):
        GPT2.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="none: no such file"):
        GPT2.read(tmp_path / "none")


@pytest.mark.reference
@pytest.mark.parametrize("kind", KINDS)
def test_the_frozen_outputs_are_transformers_own(maker, golden, kind):
    for key, value in maker["outputs"](kind).items():
        np.testing.assert_allclose(golden[f"{kind}/{key}"], value, atol=1e-5, err_msg=key)


@pytest.mark.reference
@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_what_we_write(maker, loaded, kind, tmp_path):
    import torch
    import transformers

    FAMILIES[kind].save(loaded[kind], tmp_path / "model.safetensors")
    FAMILIES[kind].save_config(loaded[kind], tmp_path / "config.json")
    theirs, report = getattr(transformers, f"{maker['KINDS'][kind]}LMHeadModel").from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    ids = maker["token_ids"]()
    with torch.no_grad():
        logits = theirs.eval()(torch.tensor(ids).long()).logits.numpy()
    ours = loaded[kind]({"token_ids": ids}, training=False)["logits"]
    np.testing.assert_allclose(ours, logits, atol=2e-5)
