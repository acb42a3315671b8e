"""Low-rank updates: what trains, what is merged, and what PEFT reads and writes."""

import functools
import importlib
import inspect
import json

import keras
import numpy as np
import pytest
from test_every_task import DATA, LABELS, TEXTS, fresh

import keras_transformers as kt
from keras_transformers.tasks import lora

OPTIONS = {"epochs": 2, "batch_size": 4, "learning_rate": 2e-2, "lora": 2, "quiet": True}


def values(pipeline):
    return {x.path: keras.ops.convert_to_numpy(x) for x in pipeline.model.weights}


def trained(task="classification", **options):
    pipeline = fresh(task)
    before = values(pipeline)
    given = OPTIONS | options
    if task == "translation":
        given = {**given, "batch_tokens": 64}
        del given["batch_size"]
    history = kt.fit(pipeline, DATA[task][0], validation=DATA[task][0], **given)
    return pipeline, before, history


@functools.cache
def trained_once(task="classification"):
    """A trained pipeline, its weights before, and the history: read only."""
    return trained(task)


@pytest.fixture(scope="module")
def classifier():
    return trained_once()


def test_only_updates_and_the_head_train(classifier):
    pipeline, before, history = classifier
    after = values(pipeline)
    changed = {path for path in after if not np.array_equal(before[path], after[path])}
    attention = {f"self_attention/{name}" for name in ("query", "key", "value", "output")}
    matrices = {path for path in changed if any(f"{name}/kernel" in path for name in attention)}
    assert len(matrices) == 4
    assert changed - matrices == {"logits/kernel", "logits/bias"}
    for path in matrices:
        update = after[path] - before[path]
        assert np.linalg.matrix_rank(pipeline.adapter.update(path)) == 2
        np.testing.assert_allclose(update, pipeline.adapter.update(path), atol=1e-6)
    found = kt.evaluate(pipeline, DATA["classification"][0])
    assert found["loss"] == pytest.approx(min(history.history["val_loss"]), abs=1e-2)
    assert all(layer.trainable for layer in pipeline.model.layers)


@pytest.mark.slow
def test_feed_forward_and_alpha():
    pipeline, before, _ = trained(lora_targets=("attention", "feed_forward"), lora_alpha=8.0)
    assert len(pipeline.adapter.updates) == 6
    after = values(pipeline)
    for path, (first, second) in pipeline.adapter.updates.items():
        np.testing.assert_allclose(after[path], before[path] + 4 * first @ second, atol=1e-6)


@pytest.mark.slow
def test_another_training_forgets_the_adapter():
    pipeline, *_ = trained()
    kt.fit(pipeline, (TEXTS, LABELS), epochs=1, quiet=True)
    assert pipeline.adapter is None
    with pytest.raises(ValueError, match="no low-rank updates"):
        kt.save(pipeline, "nowhere", format="peft")


@pytest.mark.slow
def test_a_stopped_training_goes_on(tmp_path):
    from test_fit import StopAfter

    whole, _, expected = trained()
    with pytest.raises(KeyboardInterrupt):
        trained(folder=tmp_path / "run", callbacks=[StopAfter(9)])
    again = fresh("classification")
    for layer in (again.model.get_layer("pooler"), *again.model.layers[-1:]):
        for variable in layer.weights:  # as new ones are, which a load draws again
            variable.assign(variable + 1)
    data = DATA["classification"][0]
    history = kt.fit(again, data, validation=data, folder=tmp_path / "run", **OPTIONS).history
    for name in expected.history.keys() - {"tokens_per_second"}:
        assert history[name] == expected.history[name], name
    for one, other in zip(whole.model.get_weights(), again.model.get_weights(), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.slow
def test_prompts_are_measured_with_the_model_that_trains():
    """An embedder keeps a copy of itself per prompt, which must not have the model of before."""
    plain = fresh("embedding")
    embed = kt.pipelines.Embedder(
        plain.model, plain.tokenizer, prompts={"query": "very ", "document": "a "}
    )
    data = DATA["embedding"][0]
    kt.evaluate(embed, data)
    history = kt.fit(embed, data, validation=data, **OPTIONS | {"learning_rate": 0.3})
    found = kt.evaluate(embed, data)
    best = max(history.history["val_ndcg_at_10"])
    assert len(set(history.history["val_ndcg_at_10"])) > 1
    assert found["ndcg_at_10"] == pytest.approx(best, abs=1e-6)


@pytest.mark.slow
def test_a_model_without_blocks():
    tokenizer = kt.tokenizers.NgramTokenizer.train(TEXTS, num_buckets=50)
    encoder = kt.families.fasttext.fasttext(
        vocabulary_size=tokenizer.vocabulary_size, embedding_dim=8
    )
    classify = kt.pipelines.TextClassifier(
        kt.heads.classifier(encoder, 2, dropout=0.0), tokenizer, ["no", "yes"],
        max_sequence_length=100,
    )  # fmt: skip
    with pytest.raises(ValueError, match="no Transformer blocks .*leave it out"):
        kt.fit(classify, (TEXTS, LABELS), **OPTIONS)
    kt.fit(classify, (TEXTS, LABELS), epochs=20, batch_size=4, learning_rate=1e-1, quiet=True)
    assert kt.evaluate(classify, (TEXTS, LABELS))["accuracy"] == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lora_alpha", "4"),
        ("lora_alpha", None),
        ("alpha_pattern", ["a"]),
        ("alpha_pattern", {"q": []}),
    ],
)
def test_damaged_adapters(field, value, classifier, tmp_path):
    pipeline, before, _ = classifier
    base_of(pipeline, before, tmp_path / "base")
    kt.save(pipeline, tmp_path / "adapter", format="peft")
    file = tmp_path / "adapter/adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(ValueError, match="adapter_config.json: lora_alpha or alpha_pattern has"):
        kt.load(tmp_path / "base", adapter=tmp_path / "adapter")


def test_wrong_targets():
    with pytest.raises(ValueError, match="lora_targets=.'mlp',.: pass attention or feed_forward"):
        trained(lora_targets=("mlp",))
    with pytest.raises(ValueError, match="lora=0: must be 1 or more"):
        trained(lora=0)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classification", "generation", "embedding", "translation"])
def test_other_tasks(task, tmp_path):
    pipeline, before, _ = trained(task)
    after = values(pipeline)
    for path in pipeline.adapter.updates:
        assert not np.array_equal(before[path], after[path])


SMALL = {"vocabulary_size": 20, "num_layers": 2, "num_heads": 2, "hidden_dim": 8}
FAMILIES = {
    "albert": ("encoders.albert", {**SMALL, "embedding_dim": 4}),
    "distilbert": ("encoders.distilbert", SMALL),
    "electra": ("encoders.electra", SMALL),
    "mpnet": ("encoders.mpnet", SMALL),
    "roberta": ("encoders.roberta", SMALL),
    "t5": ("encoder_decoders.t5", {**SMALL, "intermediate_dim": 12}),
    "marian": ("encoder_decoders.marian", {**SMALL, "intermediate_dim": 12}),
    "pegasus": ("encoder_decoders.pegasus", {**SMALL, "intermediate_dim": 12}),
    "bart": ("encoder_decoders.bart", {**SMALL, "intermediate_dim": 12}),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_updates_of_every_family_are_merged(family):
    place, arguments = FAMILIES[family]
    build = getattr(importlib.import_module(f"keras_transformers.models.{place}"), family)
    accepted = inspect.signature(build).parameters
    if "num_layers" not in accepted:
        layers = dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), 2)
        arguments = {k: v for k, v in arguments.items() if k != "num_layers"} | layers
    keras.utils.set_random_seed(0)
    model = build(**{name: x for name, x in arguments.items() if name in accepted})
    live = type(model).from_config(model.get_config())
    live.set_weights(model.get_weights())
    lora.enable(live, rank=2, alpha=3.0, targets=("attention", "feed_forward"))
    random = np.random.default_rng(0)
    for variable in live.trainable_variables:
        variable.assign(random.normal(0, 0.3, variable.shape))
    adapter = lora.taken(live, 2, 3.0)
    assert len(live.trainable_variables) >= 2 * len(adapter.updates) > 0
    lora.merge(adapter, model)
    inputs = {
        name: np.ones((2, 5), bool)
        if tensor.dtype == "bool"
        else random.integers(0, 2 if name == "segment_ids" else 20, (2, 5)).astype("int32")
        for name, tensor in model.input.items()
    }
    ours, theirs = (each(inputs, training=False) for each in (model, live))
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], atol=2e-4)


def base_of(pipeline, before, folder):
    """Writes the model before its training, as transformers has it."""
    after = pipeline.model.get_weights()
    for variable in pipeline.model.weights:
        variable.assign(before[variable.path])
    kt.save(pipeline, folder, format="huggingface")
    pipeline.model.set_weights(after)


@pytest.mark.parametrize(
    "task",
    [
        "classification",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("generation", "embedding")),
    ],
)
def test_an_adapter_alone(task, tmp_path):
    pipeline, before, _ = trained_once(task)
    base_of(pipeline, before, tmp_path / "base")
    kt.save(pipeline, tmp_path / "adapter", format="peft")
    assert {path.name for path in (tmp_path / "adapter").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    found = kt.load(tmp_path / "base", adapter=tmp_path / "adapter")
    for one, other in zip(found.model.get_weights(), pipeline.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    config["use_dora"] = True
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="use_dora=True .*plain LoRA"):
        kt.load(tmp_path / "base", adapter=tmp_path / "adapter")
    with pytest.raises(FileNotFoundError, match="adapter_config.json; pass the folder"):
        kt.load(tmp_path / "base", adapter=tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("classification", "AutoModelForSequenceClassification"),
        ("generation", "AutoModelForCausalLM"),
        ("embedding", "AutoModel"),
    ],
)
def test_peft_reads_and_writes_the_same(task, kind, tmp_path):
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    import transformers

    pipeline, before, _ = trained(task, lora_alpha=3.0)
    base_of(pipeline, before, tmp_path / "base")
    kt.save(pipeline, tmp_path / "adapter", format="peft")
    base = getattr(transformers, kind).from_pretrained(tmp_path / "base").eval()
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    size = pipeline.tokenizer.vocabulary_size
    ids = np.random.default_rng(0).integers(5, size, (2, 7))
    inputs = {"token_ids": ids.astype("int32")}
    if "segment_ids" in pipeline.model.input:
        inputs |= {"segment_ids": np.zeros_like(ids), "padding_mask": np.ones_like(ids, bool)}
    (ours,) = pipeline.model(inputs, training=False).values()
    with torch.no_grad():
        output = theirs(input_ids=torch.from_numpy(ids), attention_mask=torch.ones(2, 7))
    if task == "embedding":
        expected = output.last_hidden_state.mean(dim=1).numpy()
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    else:
        expected = output.logits.numpy()
    np.testing.assert_allclose(ours, expected, atol=2e-5)
    # What PEFT writes of it comes back.
    theirs.save_pretrained(tmp_path / "theirs")
    again = kt.load(tmp_path / "base", adapter=tmp_path / "theirs")
    for one, other in zip(again.model.get_weights(), pipeline.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
