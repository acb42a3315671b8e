"""Weights of transformers' TensorFlow classes: the outputs are those of these classes."""

import json
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from left_behind import same_outputs
from safetensors.numpy import load_file

import keras_transformers as kt
from keras_transformers.convert.containers.arrays import open_arrays
from keras_transformers.convert.formats.weights import find_weights
from keras_transformers.tasks.weights.heads import with_trained

GOLDEN = Path(__file__).parents[2] / "golden"
QUESTIONS = {"max_question_length": 6}
SERVED = [
    ("hf4_tf/bert_cls", "TextClassifier", {}),
    ("hf4_tf/bert_tok", "Tagger", {}),
    ("hf4_tf/bert_qa", "QuestionAnswerer", QUESTIONS),
    ("hf4_tf/bert_mlm", "MaskFiller", {}),
    ("hf4_tf/bert_pre", "MaskFiller", {}),
    ("hf4_tf/bert_pre", "NextSentenceClassifier", {"pipeline": "next_sentence"}),
    ("hf4_tf/bert_nsp", "NextSentenceClassifier", {}),
    ("hf4_tf/bert_sharded", "TextClassifier", {}),
    ("hf4_tf/bert_saved", "TextClassifier", {}),
    ("hf4_tf/distil_cls", "TextClassifier", {}),
    ("hf4_tf/distil_mlm", "MaskFiller", {}),
    ("hf4_tf/distil_qa", "QuestionAnswerer", QUESTIONS),
    ("hf4_tf/electra_disc", "Tagger", {}),
    ("hf4_tf/electra_mlm", "MaskFiller", {}),
    ("hf4_tf/electra_tok", "Tagger", {}),
    ("hf4_tf/roberta_cls", "TextClassifier", {}),
    ("hf4_tf/roberta_mlm", "MaskFiller", {}),
    ("hf4_tf/gpt2_lm", "TextGenerator", {}),
    ("hf4_tf/t5_v11", "Translator", {}),
    ("hf4_tf/marian", "Translator", {}),
    ("hf4_tf_denoisers/bart", "Translator", {}),
    ("hf4_tf_denoisers/pegasus", "Translator", {}),
    ("hf4_tf_bart_classifier/classifier", "TextClassifier", {}),
    ("hf4_tf_mbart/mbart", "Translator", {"source_language": "de_DE"}),
    ("hf4_tf_safe/bert_cls", "TextClassifier", {}),
    ("hf4_tf_safe/gpt2_lm", "TextGenerator", {}),
    *(
        (f"hf4_tf_multilingual/{name}_{form}", pipeline, {})
        for form in ("h5", "safe")
        for name, pipeline in (
            ("camembert_cls", "TextClassifier"),
            ("camembert_mlm", "MaskFiller"),
            ("mt5", "Translator"),
        )
    ),
    ("hf_old_3.5.1/bert_cls", "TextClassifier", {}),
    ("hf_old_3.5.1/bert_mlm", "MaskFiller", {}),
    ("hf_old_3.5.1/bert_tok", "Tagger", {}),
    ("hf_old_3.5.1/distil_cls", "TextClassifier", {}),
    ("hf_old_3.5.1/electra_tok", "Tagger", {}),
]


@pytest.mark.parametrize(("name", "pipeline", "options"), SERVED)
def test_a_folder_of_a_tensorflow_class_gives_its_outputs(name, pipeline, options, left_behind):
    loaded = kt.load(left_behind(name), **options)
    assert type(loaded).__name__ == pipeline
    outputs = name.replace("hf4_tf_safe", "hf4_tf")
    same_outputs(loaded.model, left_behind(f"{outputs}.npz"))


@pytest.mark.parametrize(
    ("name", "head", "task"),
    [
        ("hf4_tf/bert_base", lambda model: model, "embedding"),
        ("hf4_tf/mpnet_cls", lambda model: kt.heads.classifier(model, 2), "classification"),
        # Its class computed the exact GELU, although its configuration says "gelu_new".
        ("hf_old_3.5.1/gpt2_lm", lambda model: model, "generation"),
    ],
)
def test_weights_without_their_tokenizer_give_its_outputs(name, head, task, left_behind):
    found = with_trained(find_weights(left_behind(name)))
    assert found.trained == (task,)
    model = head(found.build())
    unused = found.fill(model, found.parts)
    assert all("pooler" in each for each in unused)
    same_outputs(model, left_behind(f"{name}.npz"))


def test_a_t5_of_safetensors_with_keras_names_loads(left_behind):
    translate = kt.load(left_behind("hf4_tf_safe/t5_v1"))
    stored = load_file(left_behind("hf4_tf_safe/t5_v1/model.safetensors"))
    found = {each.path: np.asarray(each) for each in translate.model.weights}
    for path, name in (
        ("token_embedding/embeddings", "shared/embeddings:0"),
        (
            "decoder_layer_1/cross_attention/query/kernel",
            "decoder/block_._1/layer_._1/EncDecAttention/q/kernel:0",
        ),
    ):
        np.testing.assert_array_equal(found[path], stored[name])


@pytest.fixture
def folder(left_behind, tmp_path):
    """A copy of a folder that transformers 3 wrote: its config.json names no class."""
    return shutil.copytree(left_behind("hf_old_3.5.1/bert_tok"), tmp_path / "model")


def test_the_class_in_the_file_counts_more_than_the_configuration(folder):
    """transformers 3 kept `architectures` of the folder that a model was fine-tuned from."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "architectures": ["BertForMaskedLM"]}))
    assert kt.load(folder).task == "tagging"
    assert open_arrays(folder).architecture == "BertForTokenClassification"


def change(folder, path, values):
    """Writes other values, or a new array, into tf_model.h5; None removes an array."""
    with h5py.File(folder / "tf_model.h5", "a") as opened:
        if path in opened:
            del opened[path]
        if values is not None:
            opened[path] = values


BIAS = "classifier/tf_bert_for_token_classification/classifier/bias:0"
NORM = "tf_bert_for_token_classification/bert/embeddings/LayerNorm/gamma:0"
WORDS = "tf_bert_for_token_classification/bert/embeddings/word_embeddings/weight:0"


@pytest.mark.parametrize(
    ("path", "values", "message"),
    [
        (BIAS, None, "missing from the file: classifier.bias"),
        (f"bert/{NORM}", np.ones(3, "float32"), "of another shape: bert.embeddings.LayerNorm"),
        (BIAS, np.full(2, np.nan, "float32"), "classifier.bias has 2 of 2"),
        (BIAS, np.ones(2, "int32"), "bias:0 of shape (2,) holds no weights of this file"),
        (f"other/{NORM}".replace("/bert/", "/other/"), np.ones(2, "f4"), "not used (name them in"),
        (f"head/{WORDS}", np.ones((93, 16), "float32"), "have different values, but are one "
         "shared weight, bert.embeddings.word_embeddings.weight: save the model"),
        (f"head/{WORDS}", np.ones((9, 16), "float32"), "save the model again"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_named(folder, path, values, message):
    change(folder, path, values)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        kt.load(folder, labels=["a", "b"])
    assert str(folder) in str(error.value)


def test_copies_of_tied_weights_are_read_once(folder):
    with h5py.File(folder / "tf_model.h5") as opened:
        words = opened[f"bert/{WORDS}"][...]
    change(folder, f"head/{WORDS}", words)
    assert kt.load(folder).task == "tagging"


def test_a_missing_or_damaged_file_is_named(folder, left_behind):
    file = folder / "tf_model.h5"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"tf_model\.h5: cannot.*HDF5 weights"):
        kt.load(folder)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"no file of weights .*tf_model\.h5"):
        kt.load(folder)
    shards = shutil.copytree(left_behind("hf4_tf/bert_sharded"), folder / "shards")
    (shards / "tf_model-00003-of-00004.h5").unlink()
    with pytest.raises(FileNotFoundError, match=r"index\.json lists tf_model-00003-of-00004\.h5"):
        kt.load(shards)
    (shards / "tf_model.h5.index.json").write_text("{}")
    with pytest.raises(ValueError, match=r'index\.json: has no "weight_map"'):
        kt.load(shards)


def test_kernels_of_convolutions_and_tokens_of_images_are_converted(tmp_path):
    """The names are TFViTForImageClassification's."""
    tensors = load_file(GOLDEN / "vit_random.safetensors")
    with h5py.File(tmp_path / "tf_model.h5", "w") as opened:
        for name, tensor in tensors.items():
            *modules, last = re.sub(r"layer\.(\d)", r"layer#\1", name).split(".")
            modules = [module.replace("#", "_._") for module in modules]
            if tensor.ndim > 1 and last == "weight":
                last, axes = "kernel", (2, 3, 1, 0) if tensor.ndim == 4 else (1, 0)
                tensor = tensor.transpose(axes)
            elif "layernorm" in modules[-1]:
                last = {"weight": "gamma", "bias": "beta"}[last]
            path = "/".join([modules[0], "tf_vi_t_for_image_classification", *modules, last])
            opened[f"{path}:0"] = tensor
    found = open_arrays(tmp_path)
    assert found.architecture.lower() == "vitforimageclassification"
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert found.shapes[name] == tensor.shape
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)
