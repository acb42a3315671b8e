"""Llama, Mistral, Qwen 2 and 3 against transformers."""

import numpy as np
import pytest

from keras_transformers.convert.families import family_named
from keras_transformers.decoding import greedy_search

V = 60
SIZES = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
# Name -> model_type and the fields that differ.
FORMS = {
    "llama": ("llama", {}),
    "tied, wide heads": ("llama", {"tie_word_embeddings": True, "head_dim": 12}),
    "one key head, biases": (
        "llama",
        {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True},
    ),
    "all key heads": ("llama", {"num_key_value_heads": 4, "rms_norm_eps": 1e-5}),
    "llama 3": ("llama", {"rope_parameters": {"rope_theta": 5e5, **LLAMA3}}),
    "linear": (
        "llama",
        {"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}},
    ),
    "yarn": (
        "llama",
        {
            "rope_parameters": {
                "rope_theta": 1e4,
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 8,
            }
        },
    ),
    "mistral": ("mistral", {"sliding_window": 4}),
    "mistral without windows": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2 with windows": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"head_dim": 16}),
}
IDS = np.random.default_rng(0).integers(3, V, (3, 11)).astype("int32")


def theirs(name, folder):
    """Writes a model of transformers with random weights, and returns it."""
    torch = pytest.importorskip("torch", reason="needs the extra reference")
    transformers = pytest.importorskip("transformers", reason="needs the extra reference")
    kind, fields = FORMS[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SIZES, **fields})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for parameter in model.parameters():  # biases and norms, too
        torch.nn.init.normal_(parameter, std=0.2)
    model.eval().save_pretrained(folder)
    return torch, transformers, model


def ours(name, folder):
    family = family_named(FORMS[name][0])
    model = family.build(**family.read(folder))
    family.fill(model, folder)
    return model


@pytest.mark.reference
@pytest.mark.parametrize("name", FORMS)
def test_logits_and_greedy_texts_are_those_of_transformers(name, tmp_path):
    torch, transformers, reference = theirs(name, tmp_path / "theirs")
    model = ours(name, tmp_path / "theirs")
    with torch.no_grad():
        expected = reference(torch.tensor(IDS, dtype=torch.long)).logits.numpy()
    np.testing.assert_allclose(model({"token_ids": IDS})["logits"], expected, atol=1e-5, rtol=1e-5)

    # Prompts of several lengths, padded on the left there, with a cache that grows or does not.
    lengths, new = [11, 4, 7], 12
    padded, mask = np.zeros_like(IDS), np.zeros_like(IDS)
    for row, length in enumerate(lengths):
        padded[row, 11 - length :], mask[row, 11 - length :] = IDS[row, :length], 1
    found = reference.generate(
        torch.tensor(padded, dtype=torch.long),
        attention_mask=torch.tensor(mask),
        do_sample=False,
        max_new_tokens=new,
    ).numpy()[:, 11:]
    real = np.arange(11) < np.array(lengths)[:, None]
    for max_length in (None, new):
        step, last, cache = model.start_decoding(IDS, real, max_length=max_length)
        texts = greedy_search(
            step,
            last,
            cache,
            end_token_id=2,
            max_length=new,
            growing_axis=2 if max_length is None else None,
        )
        np.testing.assert_array_equal(texts.token_ids[:, 0, : found.shape[1]], found)

    # And back.
    family_named(FORMS[name][0]).save(model, tmp_path / "model.safetensors")
    family_named(FORMS[name][0]).save_config(model, tmp_path / "config.json")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        written = again(torch.tensor(IDS, dtype=torch.long)).logits.numpy()
    np.testing.assert_allclose(written, expected, atol=1e-5, rtol=1e-5)
