"""PEFT's adapters: what its library computes with them, and what is refused, and why."""

import json
import runpy
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_transformers as kt
from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.formats.peft import read_peft
from keras_transformers.families.bert import files as bert
from keras_transformers.families.gpt import files as gpt

GOLDEN = Path(__file__).parents[2] / "golden"
CONFIGS = json.loads((GOLDEN / "peft.json").read_text())
QUERY = "bert.encoder.layer.0.attention.self.query"


@pytest.fixture(scope="module")
def maker():
    return runpy.run_path(str(GOLDEN / "make_peft.py"))


@pytest.fixture(scope="module")
def arrays():
    with np.load(GOLDEN / "peft.npz") as file:
        return dict(file)


def part(arrays, prefix):
    return {k.removeprefix(prefix): x for k, x in arrays.items() if k.startswith(prefix)}


def base(kind, fields, arrays, folder):
    """The model that the adapter was trained on, with its family."""
    family = gpt.FAMILY if "GPT2" in kind else bert.FAMILY
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": family.model_type, **fields}))
    model = family.build(**family.read(folder))
    if "Classification" in kind:
        model = kt.heads.classifier(model, 2)
    family.fill(model, Arrays.of(folder, part(arrays, f"{kind}/")), ignore=["lm_head.weight"])
    return model, family


def adapter(name, arrays, folder, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(CONFIGS[name] | changes))
    save_file(part(arrays, f"{name}/adapter/"), folder / "adapter_model.safetensors")
    return folder


def read(name, maker, arrays, tmp_path, **changes):
    kind, fields, _ = maker["CASES"][name]
    model, family = base(kind, fields, arrays, tmp_path / "base")
    return model, family, read_peft(model, family, adapter(name, arrays, tmp_path / "a", **changes))


@pytest.mark.parametrize("name", CONFIGS)
def test_the_models_are_those_of_peft(name, maker, arrays, tmp_path):
    model, family, stored = read(name, maker, arrays, tmp_path)
    merged = part(arrays, f"{name}/merged/")
    before = part(arrays, f"{maker['CASES'][name][0]}/")
    assert merged
    for tensor in family.names.tensors(model):
        expected = merged.get(tensor.name, before[tensor.name])
        np.testing.assert_allclose(tensor.read(), expected, atol=1e-5, err_msg=tensor.name)
    is_classifier = "Classification" in maker["CASES"][name][0]
    assert stored == ({"logits/kernel", "logits/bias"} if is_classifier else set())


@pytest.mark.reference
@pytest.mark.parametrize("name", CONFIGS)
def test_the_frozen_adapters_are_pefts_own(name, maker, arrays):
    pytest.importorskip("peft")
    config, found = maker["make"](name)
    assert {k: config.get(k) for k in CONFIGS[name]} | {"peft_version": ""} == CONFIGS[name] | {
        "peft_version": ""
    }
    for key, array in found.items():
        np.testing.assert_allclose(array, arrays[key], atol=1e-6, err_msg=key)


def test_patterns_that_no_module_uses_are_named(maker, arrays, tmp_path, caplog):
    patterns = {r"layer\.[0-1]\..*query": 64, "no_such": 2, "layer.0.*query": 1, "e.*query": 3}
    read("patterns", maker, arrays, tmp_path, alpha_pattern=patterns)
    (line,) = caplog.messages
    assert "alpha_pattern" in line
    assert "'no_such'" in line
    assert "'layer.0.*query'" in line  # an earlier one has them all
    assert "'e.*query'" not in line


@pytest.mark.parametrize("field", ["rank_pattern", "alpha_pattern"])
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "RE2"),
        ("(?=x)query", "RE2"),
        ("\ud800", "RE2"),
        ("x" * 1001, "more than 1000 characters"),
        ("((((a{1000}){1000}){1000}){1000}", "RE2"),
    ],
)
def test_patterns_that_are_no_regular_expressions(field, pattern, message, maker, arrays, tmp_path):
    with pytest.raises(ValueError, match=rf"adapter_config.json: {field}.*{message}"):
        read("patterns", maker, arrays, tmp_path, **{field: {pattern: 2}})


def test_patterns_with_exponential_time_in_python(maker, arrays, tmp_path, caplog):
    read("patterns", maker, arrays, tmp_path, alpha_pattern={r"(([a-z.0-9]+)+)+!": 2})
    assert "which no update" in caplog.text


def test_patterns_that_take_too_long(maker, arrays, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_transformers.convert.formats.peft._MOST_SECONDS", -1)
    with pytest.raises(ValueError, match=r"alpha_pattern takes more than .* seconds.*use fewer"):
        read("patterns", maker, arrays, tmp_path, rank_pattern={})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("peft_type", "ADALORA"),
        ("use_dora", True),
        ("bias", "all"),
        ("lora_bias", True),
        ("layer_replication", [[0, 2], [1, 3]]),
        ("alora_invocation_tokens", [1, 2]),
        ("trainable_token_indices", [3]),
        ("target_parameters", ["weight"]),
        ("init_lora_weights", "pissa"),  # PEFT takes the update's start off the model's matrix
        ("init_lora_weights", "olora"),
        ("init_lora_weights", {}),
        ("r", 0),
        ("r", True),
        ("rank_pattern", {"query": 1.5}),
        ("rank_pattern", [1]),
        ("alpha_pattern", {"query": float("inf")}),
    ],
)
def test_other_adapters_are_refused(field, value, maker, arrays, tmp_path):
    if value == {}:  # as PEFT writes what is not set
        read("chosen layers", maker, arrays, tmp_path, **{field: value})
        return
    with pytest.raises(ValueError, match=rf"adapter_config.json: .*{field}"):
        read("chosen layers", maker, arrays, tmp_path, **{field: value})


def test_ranks_other_than_the_configurations(maker, arrays, tmp_path):
    with pytest.raises(
        ValueError, match=r"query: lora_A is \(4, 8\), lora_B \(8, 4\); with rank 2 from"
    ):
        read("patterns", maker, arrays, tmp_path, rank_pattern={"value": 3})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite(value, maker, arrays, tmp_path):
    kind, fields, _ = maker["CASES"]["patterns"]
    model, family = base(kind, fields, arrays, tmp_path / "base")
    folder = adapter("patterns", arrays, tmp_path / "a")
    found = load_file(folder / "adapter_model.safetensors")
    found[f"base_model.model.{QUERY}.lora_B.weight"][0, 0] = value
    save_file(found, folder / "adapter_model.safetensors")
    with pytest.raises(ValueError, match=rf"NaN or infinity: {QUERY}.lora_B.weight has 1"):
        read_peft(model, family, folder)


def test_no_product_before_the_shapes_fit(maker, arrays, tmp_path):
    """A file of 126 KB whose product would take 3.9 GB."""
    kind, fields, _ = maker["CASES"]["patterns"]
    model, family = base(kind, fields, arrays, tmp_path / "base")
    folder = adapter("patterns", arrays, tmp_path / "a", rank_pattern={}, r=1)
    size = 31_250
    wide = {
        f"base_model.model.{QUERY}.lora_A.weight": np.ones((1, size), np.float16),
        f"base_model.model.{QUERY}.lora_B.weight": np.ones((size, 1), np.float16),
    }
    save_file(wide, folder / "adapter_model.safetensors")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as refused:
            read_peft(model, family, folder)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    message = str(refused.value)
    assert f"lora_A is (1, {size}), lora_B ({size}, 1)" in message
    assert "(1, 8) and (8, 1)" in message


@pytest.mark.parametrize("has_head", [True, False])
def test_only_a_head_that_the_adapter_lacks_is_called_new(
    has_head, maker, arrays, tmp_path, caplog
):
    kind, fields, _ = maker["CASES"]["chosen layers"]
    base(kind, fields, arrays, tmp_path / "base")
    encoder = {k: x for k, x in part(arrays, f"{kind}/").items() if "classifier" not in k}
    save_file(encoder, tmp_path / "base/model.safetensors")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
    (tmp_path / "base/vocab.txt").write_text("\n".join(words) + "\n")
    folder = adapter("chosen layers", arrays, tmp_path / "a")
    if not has_head:
        updates = part(arrays, "chosen layers/adapter/")
        updates = {k: x for k, x in updates.items() if "classifier" not in k}
        save_file(updates, folder / "adapter_model.safetensors")
    classify = kt.load(
        tmp_path / "base", pipeline="classification", labels=["x", "y"], adapter=folder
    )
    warnings = [line for line in caplog.messages if "new, with random weights" in line]
    assert len(warnings) == (not has_head)
    assert has_head or "the layers logits for classification" in warnings[0]
    if has_head:
        merged = arrays["chosen layers/merged/classifier.weight"]
        np.testing.assert_array_equal(classify.model.get_layer("logits").kernel, merged.T)
