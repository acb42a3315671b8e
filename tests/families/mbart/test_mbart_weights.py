"""mBART against Hugging Face's, with the random model of make_mbart.py."""

import encoder_decoder_checks as checks
import numpy as np
import pytest

from keras_transformers.families.bart.files import FAMILY as BART
from keras_transformers.families.mbart.files import FAMILY as MBART

GOLDEN = checks.Golden(MBART)
START = {"decoder_start_token_id": 37}  # the tokenizer's


def test_logits_and_searches_equal_transformers(tmp_path):
    checks.outputs_equal_transformers(GOLDEN, "base", tmp_path)


def test_saving_gives_the_same_files(tmp_path):
    checks.saving_gives_the_same_files(GOLDEN, "base", tmp_path, **START)


def test_weights_that_do_not_fit_are_refused(tmp_path):
    tensors = GOLDEN.tensors("base")
    norm = "model.encoder.layer_norm.weight"
    kept = {name: tensor for name, tensor in tensors.items() if name != norm}
    with pytest.raises(ValueError, match=f"missing from the file: {norm}"):
        checks.loaded(MBART, GOLDEN.folder("base", tmp_path, tensors=kept))
    model = GOLDEN.model("base", tmp_path)
    with pytest.raises(ValueError, match="not a BART: .*encoder_norm"):
        BART.save(model, tmp_path / "bart.safetensors")
    assert MBART.fits(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bart"}, "model_type is 'bart'; expected 'mbart'"),
        ({"scale_embedding": "no"}, "scale_embedding='no'; expected true or false"),
        ({"normalize_before": False}, "normalize_before=False; only True is supported"),
        ({"add_final_layer_norm": False}, "add_final_layer_norm=False; only True is supported"),
        ({"normalize_embedding": False}, "normalize_embedding=False; only True is supported"),
        ({"decoder_attention_heads": 8}, "decoder_attention_heads=8 and encoder_attention_heads=2"),
        ({"eos_token_id": 3}, "eos_token_id=3; only 2 is supported"),
        ({"d_model": None}, "has no field 'd_model'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        MBART.read(GOLDEN.folder("base", tmp_path, **change))


@pytest.mark.reference
def test_against_transformers_live(tmp_path):
    checks.the_frozen_outputs_are_transformers_own(GOLDEN, "base")
    checks.transformers_and_we_read_what_the_other_writes(GOLDEN, "base", tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize("seed", range(3))
def test_logits_of_other_models_equal_transformers(seed, tmp_path):
    import torch
    import transformers

    transformers.set_seed(seed)
    sizes = {"d_model": 16 + 8 * seed, "encoder_layers": 1 + seed, "decoder_layers": 2}
    sizes |= {"max_position_embeddings": 12, "activation_function": ("relu", "gelu", "silu")[seed]}
    sizes["scale_embedding"] = seed != 1
    theirs = transformers.MBartForConditionalGeneration(
        transformers.MBartConfig(**GOLDEN.maker.configs["base"] | sizes)
    ).eval()
    with torch.no_grad():
        for parameter in (*theirs.parameters(), theirs.final_logits_bias):
            parameter.add_(0.3 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path)
    model = checks.loaded(MBART, tmp_path)
    assert model.count_params() == theirs.num_parameters() + theirs.final_logits_bias.numel()
    inputs = GOLDEN.maker.inputs("base")
    sources, targets = (torch.tensor(array).long() for array in inputs.values())
    with torch.no_grad():
        wanted = theirs(
            sources, attention_mask=(sources != 1).long(), decoder_input_ids=targets
        ).logits.numpy()
    checks.same_logits(np.asarray(model(inputs, training=False)["logits"]), wanted)
