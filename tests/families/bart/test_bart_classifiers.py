"""BART's and mBART's classifiers against Hugging Face's, with make_bart_classifiers.py's heads."""

import json
import runpy

import encoder_decoder_checks as checks
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

import keras_transformers as kt
from keras_transformers.convert.families import family_named
from keras_transformers.convert.formats.weights import find_weights
from keras_transformers.families.bart.files import FAMILY as BART
from keras_transformers.models.as_encoder import as_end_pooled_encoder
from keras_transformers.models.entry import skeleton
from keras_transformers.tasks.weights.heads import for_task

MAKER = runpy.run_path(str(checks.GOLDEN / "make_bart_classifiers.py"))
CASES = MAKER["CASES"]
LABELS = MAKER["LABELS"]
OUT = "classification_head.out_proj"


def golden(family, name):
    """What transformers computes, and the head's tensors."""
    file, start = np.load(checks.GOLDEN / "bart_classifiers.npz"), f"{family}/{name}/"
    return {key.removeprefix(start): file[key] for key in file.files if key.startswith(start)}


def tensors(family, name):
    """The tensors of the classifier's file."""
    stored = checks.Golden(family_named(family)).tensors(name)
    del stored["final_logits_bias"]
    head = {
        key.removeprefix("tensors/"): array
        for key, array in golden(family, name).items()
        if key != "logits"
    }
    return {**stored, **head}


def write(folder, family="bart", name="base", *, stored=None, **changes):
    """A classifier's folder as transformers writes it, without a tokenizer."""
    kind = "MBart" if family == "mbart" else "Bart"
    fields = {"architectures": [f"{kind}ForSequenceClassification"], "num_labels": None}
    fields |= {key: {str(k): v for k, v in x.items()} for key, x in MAKER["FIELDS"].items()}
    return checks.Golden(family_named(family)).folder(
        name, folder, tensors=stored or tensors(family, name), **(fields | changes)
    )


def classifier(folder):
    """The classifier of a folder, and the tensors that it does not use."""
    found = for_task(find_weights(folder), None)
    assert found.trained == ("classification", "zero_shot_classification")
    model = kt.heads.classifier(found.build(), len(found.head.labels()))
    return model, found.fill(model, ())


@pytest.mark.parametrize(("family", "name"), CASES)
def test_logits_equal_transformers(family, name, tmp_path):
    model, unused = classifier(write(tmp_path, family, name))
    assert unused == []
    wanted = golden(family, name)["logits"]
    inputs = MAKER["inputs"](family, name)
    checks.same_logits(model(inputs, training=False)["logits"], wanted)
    # Neither the other rows nor what stands at padding matters, and an end token there is none.
    inputs["token_ids"] = np.where(inputs["padding_mask"], inputs["token_ids"], 2)
    for row, ids in enumerate(inputs["token_ids"]):
        length = inputs["padding_mask"][row].sum()
        for width in (length, len(ids)):
            alone = {
                "token_ids": ids[None, :width],
                "padding_mask": np.arange(width)[None] < length,
            }
            found = model(alone, training=False)["logits"]
            np.testing.assert_allclose(found, wanted[row : row + 1], atol=2e-5)


@pytest.mark.parametrize(("family", "name"), CASES)
def test_saving_gives_the_same_files(family, name, tmp_path):
    model, _ = classifier(write(tmp_path, family, name))
    described, found = family_named(family), tmp_path / "copy"
    found.mkdir()
    described.save(model, found / "model.safetensors")
    copies, wanted = load_file(found / "model.safetensors"), tensors(family, name)
    assert copies.keys() == wanted.keys()
    for key, tensor in wanted.items():
        np.testing.assert_array_equal(copies[key], tensor, err_msg=key)
    described.save_config(model, found / "config.json", labels=LABELS)
    written = json.loads((found / "config.json").read_text())
    assert written["id2label"] == dict(zip("012", LABELS, strict=True))
    assert written["num_labels"] == 3
    assert described.read(found) == described.read(tmp_path)


def test_bart_large_mnli_has_its_number_of_parameters():
    """407,344,131 in transformers: those of BartModel and of the head."""

    def build():
        body = BART.build(**kt.models.bart.SIZES["bart_large"], vocabulary_size=50265)
        return kt.heads.classifier(BART.as_encoder(body), 3)

    assert skeleton(build).count_params() == 406_291_456 + (1024 + 1) * (1024 + 3)


def test_fairseqs_version_of_the_format_is_no_weight(tmp_path):
    """BART Large MNLI's file has it."""
    versions = {
        f"model.{side}.version": np.array([3.0], "float32") for side in ("encoder", "decoder")
    }
    _, unused = classifier(write(tmp_path, stored={**tensors("bart", "base"), **versions}))
    assert unused == []


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    stored = tensors("bart", "base")
    four = {**stored, f"{OUT}.bias": np.zeros(4, "float32")}
    with pytest.raises(ValueError, match=rf"{OUT}.weight is \(3, 16\), .*needs \(4, 16\)"):
        classifier(write(tmp_path, stored=four))
    without = {key: array for key, array in stored.items() if key != f"{OUT}.weight"}
    with pytest.raises(ValueError, match=rf"missing from the file: {OUT}.weight"):
        classifier(write(tmp_path, stored=without))
    with pytest.raises(ValueError, match=r"missing from the file: .*model.decoder.layers.1"):
        classifier(write(tmp_path, decoder_layers=2))
    with pytest.raises(ValueError, match=rf"{OUT}.bias has 3 of 3"):
        classifier(write(tmp_path, stored={**stored, f"{OUT}.bias": np.full(3, np.nan, "float32")}))


def test_labels_without_names_have_numbers(tmp_path, caplog):
    found = for_task(find_weights(write(tmp_path, id2label=None, label2id=None)), None)
    assert found.head.labels() == ["LABEL_0", "LABEL_1", "LABEL_2"]
    found = for_task(find_weights(write(tmp_path, id2label={"0": "no", "1": "yes"})), None)
    assert found.head.labels() == ["no", "yes", "LABEL_2"]
    assert "the head has 3 classes" in caplog.text


def test_what_the_decoder_reads_depends_on_the_start_token():
    model = kt.models.bart.bart(
        vocabulary_size=9, num_encoder_layers=1, num_decoder_layers=1, num_heads=2, hidden_dim=8,
        intermediate_dim=8,
    )  # fmt: skip
    encoder = as_end_pooled_encoder(model, end_token_id=2, start_token_id=2)
    ids = tf.constant([[0, 5, 6, 2]])
    hidden = encoder({"token_ids": ids, "padding_mask": ids > -1})["sequence_output"]
    targets = {"source_token_ids": ids, "target_token_ids": tf.constant([[2, 0, 5, 6]])}
    logits = model(targets)["logits"]
    found = model.get_layer("token_embedding")(hidden, reverse=True)
    np.testing.assert_allclose(found, logits, atol=1e-5)
    other = kt.models.gpt.gpt(vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=8)
    with pytest.raises(ValueError, match="'gpt' has no encoder: use an encoder-decoder"):
        as_end_pooled_encoder(other, end_token_id=2)


@pytest.mark.reference
@pytest.mark.parametrize(("family", "name"), CASES)
def test_the_frozen_outputs_are_transformers_own(family, name):
    for key, value in MAKER["outputs"](family, name).items():
        wanted = golden(family, name)[key]
        np.testing.assert_allclose(wanted, value, atol=1e-5, err_msg=key)


@pytest.mark.reference
def test_transformers_counts_as_many_parameters():
    import torch
    import transformers

    with torch.device("meta"):
        config = transformers.BartConfig(num_labels=3)
        assert transformers.BartForSequenceClassification(config).num_parameters() == 407_344_131


@pytest.mark.reference
@pytest.mark.parametrize("family", ["bart", "mbart"])
@pytest.mark.parametrize("seed", range(3))
def test_other_models_equal_transformers_which_reads_ours(family, seed, tmp_path):
    import torch
    import transformers

    transformers.set_seed(seed)
    body = MAKER["maker"](family)
    sizes = {"d_model": 16 + 8 * seed, "encoder_layers": 1 + seed, "decoder_layers": 2 - seed // 2}
    sizes |= {"activation_function": ("relu", "gelu", "silu")[seed], "scale_embedding": seed == 1}
    config = getattr(transformers, f"{body.classes}Config")(
        **body.configs["base"] | sizes, num_labels=2 + seed
    )
    theirs = getattr(transformers, f"{body.classes}ForSequenceClassification")(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path)
    found = for_task(find_weights(tmp_path), None)
    model = kt.heads.classifier(found.build(), 2 + seed)
    assert found.fill(model, ()) == []
    assert model.count_params() == theirs.num_parameters()
    inputs = MAKER["inputs"](family, "base")
    ids, mask = (torch.tensor(inputs[key]).long() for key in ("token_ids", "padding_mask"))
    with torch.no_grad():
        wanted = theirs(ids, attention_mask=mask).logits.numpy()
    checks.same_logits(model(inputs, training=False)["logits"], wanted)
    ours = tmp_path / "ours"
    ours.mkdir()
    family_named(family).save(model, ours / "model.safetensors")
    family_named(family).save_config(model, ours / "config.json")
    again, report = type(theirs).from_pretrained(ours, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    with torch.no_grad():
        logits = again.eval()(ids, attention_mask=mask).logits.numpy()
    checks.same_logits(logits, wanted)
