"""BART against Hugging Face's, with the random models of make_bart.py."""

import encoder_decoder_checks as checks
import numpy as np
import pytest

from keras_transformers.families.bart.files import FAMILY as BART
from keras_transformers.families.marian.files import FAMILY as MARIAN

GOLDEN = checks.Golden(BART)
NAMES = ("base", "scaled")
SHARED = "model.shared.weight"


@pytest.mark.one_case
@pytest.mark.parametrize("name", NAMES)
def test_logits_and_searches_equal_transformers(name, tmp_path):
    checks.outputs_equal_transformers(GOLDEN, name, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_saving_gives_the_same_files(name, tmp_path):
    checks.saving_gives_the_same_files(GOLDEN, name, tmp_path)


def test_a_class_without_a_head_has_other_names_and_no_bias(tmp_path):
    """As in the folder of BART Large, whose class is BartModel."""
    tensors = GOLDEN.tensors("base")
    bias = tensors.pop("final_logits_bias")
    bare = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    bare["encoder.embed_tokens.weight"] = tensors[SHARED]
    model = checks.loaded(BART, GOLDEN.folder("base", tmp_path, tensors=bare))
    found = model(GOLDEN.maker.inputs("base"), training=False)["logits"]
    checks.same_logits(found, GOLDEN.outputs("base")["logits"] - bias)


def test_weights_that_do_not_fit_are_refused(tmp_path):
    tensors = GOLDEN.tensors("base")
    copies = {**tensors, "lm_head.weight": tensors[SHARED] + 1}
    with pytest.raises(ValueError, match=r"lm_head.weight.*model.shared.weight,"):
        checks.loaded(BART, GOLDEN.folder("base", tmp_path, tensors=copies))
    norm = "model.encoder.layernorm_embedding.weight"
    kept = {name: tensor for name, tensor in tensors.items() if name != norm}
    with pytest.raises(ValueError, match=f"missing from the file: {norm}"):
        checks.loaded(BART, GOLDEN.folder("base", tmp_path, tensors=kept))
    short = {**tensors, "final_logits_bias": np.zeros((1, 39), "float32")}
    with pytest.raises(ValueError, match=r"of another shape: final_logits_bias is \(1, 39\)"):
        checks.loaded(BART, GOLDEN.folder("base", tmp_path, tensors=short))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "marian"}, "model_type is 'marian'; expected 'bart'"),
        ({"scale_embedding": "no"}, "scale_embedding='no'; expected true or false"),
        ({"normalize_before": True}, "normalize_before=True; only False is supported"),
        ({"normalize_embedding": False}, "normalize_embedding=False; only True is supported"),
        ({"decoder_attention_heads": 8}, "decoder_attention_heads=8 and encoder_attention_heads=2"),
        ({"decoder_start_token_id": 0}, "decoder_start_token_id=0; only 2 is supported"),
        ({"activation_function": "elu"}, "activation_function='elu'; expected one of gelu"),
        ({"d_model": None}, "has no field 'd_model'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        BART.read(GOLDEN.folder("base", tmp_path, **change))


def test_its_relatives_are_no_barts(tmp_path):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "hidden_dim": 8}
    other = MARIAN.build(**sizes, vocabulary_size=9, intermediate_dim=8, positions="learned")
    with pytest.raises(ValueError, match="not a BART: it has no layer source_embeddings_norm"):
        BART.save(other, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="not a Marian: .*source_embeddings_norm"):
        MARIAN.save(GOLDEN.model("base", tmp_path), tmp_path / "marian.safetensors")


@pytest.mark.reference
@pytest.mark.parametrize("name", NAMES)
def test_against_transformers_live(name, tmp_path):
    checks.the_frozen_outputs_are_transformers_own(GOLDEN, name)
    checks.transformers_and_we_read_what_the_other_writes(GOLDEN, name, tmp_path)
