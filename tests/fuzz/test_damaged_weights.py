"""Every file of other people's weights is taken when damaged, or refused by name.

See `test_damaged_files`.
"""

import functools
import json
import runpy
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorflow as tf
import tiny
from reader import Reader, as_json, check_reader, text, written
from safetensors.numpy import save_file

from keras_transformers.convert.containers.arrays import open_arrays
from keras_transformers.convert.families import family_named
from keras_transformers.convert.formats import peft
from keras_transformers.convert.formats.weights import find_weights
from keras_transformers.families.bert import files as bert

VOCABULARY = text(*tiny.VOCABULARY, "")
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8}
BERT = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "id2label": {"0": "a", "1": "b"},
    "problem_type": "single_label_classification",
    "vocab_size": 14,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "hidden_size": 8,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}
TOKENIZER = {
    "do_lower_case": True,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    "model_max_length": 512,
    "mask_token": {"content": "[MASK]"},
    "unk_token": "[UNK]",
}
ALL_IN_ONE = tiny.tokenizer_json()
MODULES = [
    {"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
]
POOLING = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


def keras_object(name: str, **config: Any) -> dict[str, Any]:
    return {"registered_name": f"keras_hub>{name}", "config": config}


PRESET = keras_object(
    "BertBackbone", vocabulary_size=14, intermediate_dim=8, dropout=0.1, max_sequence_length=16,
    num_segments=2, **SIZES,
)  # fmt: skip
IMAGES = keras_object(
    "ViTBackbone", image_shape=[8, 8, 3], patch_size=[4, 4], mlp_dim=8, dropout_rate=0.0,
    layer_norm_epsilon=1e-6, use_class_token=True, **SIZES,
)  # fmt: skip


def opened(**beside: Any) -> Callable[[Path], None]:
    """Opens the folder that has the damaged file, with others: name, "/" written "__" -> JSON."""

    def read(path: Path) -> None:
        folder = path.parent
        for name, value in beside.items():
            file = folder / name.replace("__", "/")
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(value))
        if not (folder / "model.safetensors").exists():
            save_file({"a": np.ones(2, "float32")}, folder / "model.safetensors")
        found = find_weights(folder)
        if "tokenizer" in path.name:
            (folder / "vocab.txt").write_bytes(VOCABULARY())
            found.tokenizers()

    return read


def read_all_in_one(path: Path) -> None:
    (path.parent / "config.json").write_text(json.dumps(BERT))
    save_file({"a": np.ones(2, "float32")}, path.parent / "model.safetensors")
    find_weights(path.parent).tokenizers()


def read_pooling(path: Path) -> None:
    (path.parents[1] / "modules.json").write_text(json.dumps(MODULES))
    (path.parents[1] / "config.json").write_text(json.dumps(BERT))
    save_file({"a": np.ones(2, "float32")}, path.parents[1] / "model.safetensors")
    find_weights(path.parents[1])


def write_npz(path: Path) -> None:
    layer = "Transformer/encoderblock_0"
    arrays = {
        "cls": np.ones((1, 1, 4)),
        "embedding/kernel": np.ones((2, 2, 3, 4)),
        "Transformer/posembed_input/pos_embedding": np.ones((1, 5, 4)),
        f"{layer}/MultiHeadDotProductAttention_1/query/kernel": np.ones((4, 2, 2)),
        f"{layer}/MlpBlock_3/Dense_0/kernel": np.ones((4, 8)),
    }
    np.savez(path, **arrays)


def write_checkpoint(path: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        names = ("bert/embeddings/word_embeddings", "bert/pooler/dense/kernel", "global_step")
        variables = [tf.compat.v1.get_variable(name, initializer=np.ones((4, 4))) for name in names]
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(variables)
        saver.save(session, str(path.parent / "bert_model.ckpt"), write_meta_graph=False)


def read_checkpoint(path: Path) -> None:
    missing = [name for name in (INDEX, DATA) if not (path.parent / name).exists()]
    for name in missing:
        (path.parent / name).write_bytes(written(write_checkpoint, name)())
    dict(open_arrays(path.parent / "bert_model.ckpt"))


def of_model_garden(name: str) -> Callable[[], bytes]:
    def original() -> bytes:
        with tarfile.open(GOLDEN) as archive:
            return archive.extractfile(f"tagger/{name}").read()

    return original


def golden(archive: str, name: str) -> Callable[[], bytes]:
    def original() -> bytes:
        with tarfile.open(GOLDEN.with_name(f"{archive}.tar.xz")) as opened:
            return opened.extractfile(f"{archive}/{name}").read()

    return original


def read_keras_h5(path: Path) -> None:
    find_weights(path)
    dict(open_arrays(path))


def read_model_garden(path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        for name in ("ckpt-1.index", "ckpt-1.data-00000-of-00001"):
            if not (path.parent / name).exists():
                (path.parent / name).write_bytes(archive.extractfile(f"tagger/{name}").read())
    find_weights(path.parent)
    dict(open_arrays(path.parent))


def read_opennmt(path: Path) -> None:
    run = path.parent / "run"
    with tarfile.open(GOLDEN.with_name("onmt.tar.xz")) as archive:
        for member in archive:
            if member.isfile() and member.name.startswith("onmt/transformer/"):
                file = run / member.name.rpartition("/")[2]
                if not file.exists():
                    run.mkdir(exist_ok=True)
                    file.write_bytes(archive.extractfile(member).read())
    (run / "model_description.py").write_text("num_heads = 2")
    (run / path.name).write_bytes(path.read_bytes())
    find_weights(run).tokenizers()


def write_gguf(file: Path) -> None:
    tests = runpy.run_path(str(Path(__file__).parents[1] / "convert/formats/test_gguf.py"))
    tests["write"](file, tiny.pipeline("embedding"))


def write_llama_gguf(file: Path) -> None:
    path = Path(__file__).parents[1] / "families/llama/test_llama_weights.py"
    tests = runpy.run_path(str(path))
    tensors, found = tests["golden"]("llama", file.parent / "folder")
    fields = json.loads(str(found["llama/config"]))
    tests["write_gguf"](file, "llama", tensors, fields)
    shutil.rmtree(file.parent / "folder")


def read_gguf(path: Path) -> None:
    found = find_weights(path)
    found.tokenizers()
    dict(open_arrays(path))


def llama_config() -> bytes:
    found = np.load(Path(__file__).parents[1] / "golden/families/llama.npz")
    return str(found["llama/config"]).encode()


def read_latest(path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        for name in ("ckpt-1.index", "ckpt-1.data-00000-of-00001"):
            for copy in (name, name.replace("ckpt-1", "ckpt-2")):
                (path.parent / copy).write_bytes(archive.extractfile(f"tagger/{name}").read())
    find_weights(path.parent)


GOLDEN = Path(__file__).parents[1] / "golden/left_behind/model_garden.tar.xz"
TF_PART = "tf_model-00001-of-00001.h5"


def write_tf_h5(path: Path) -> None:
    """A weight, a copy of it, and as much of an optimizer as Keras 2 saves."""
    with h5py.File(path, "w") as opened:
        opened.attrs["layer_names"] = ["bert", "classifier"]
        for group in ("bert", "mlm___cls"):
            name = f"{group}/tf_bert_for_masked_lm/bert/embeddings/word_embeddings/weight:0"
            opened[name] = np.ones((4, 4), "float32")
        opened["optimizer_weights/iteration:0"] = np.int64(3)


def read_all(path: Path) -> None:
    if path.suffix == ".json":
        (path.parent / TF_PART).write_bytes(written(write_tf_h5, TF_PART)())
    dict(open_arrays(path))


INDEX, DATA = "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"
CONFIG = {"config.json": BERT}
FASTTEXT = Path(__file__).parents[1] / "golden" / "fasttext"


def read_fasttext(path: Path) -> None:
    found = find_weights(path)
    found.tokenizers()
    assert 0 < found.build().count_params() < 1_000_000


ADAPTER = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "alpha_pattern": {"query": 8}}


@functools.cache
def adapted() -> Any:
    """A model of the family, with the name and shape of a matrix."""
    model = tiny.encoder()
    tensor = next(each for each in bert.FAMILY.names.tensors(model) if "query.weight" in each.name)
    return model, tensor


def write_adapter(path: Path) -> None:
    _, tensor = adapted()
    name = f"base_model.model.{tensor.name.removesuffix('.weight')}"
    arrays = {
        f"{name}.lora_A.weight": np.ones((2, tensor.shape[1]), "float32"),
        f"{name}.lora_B.weight": np.zeros((tensor.shape[0], 2), "float32"),
    }
    save_file(arrays, path)


def read_adapter(path: Path) -> None:
    config, weights = path.parent / peft.CONFIG, path.parent / peft.WEIGHTS
    if path == config:
        write_adapter(weights)
    else:
        config.write_text(json.dumps(ADAPTER))
    peft.read_peft(adapted()[0], bert.FAMILY, path.parent)


READERS = {
    "adapter's config": Reader(peft.CONFIG, as_json(ADAPTER), read_adapter, is_json=True),
    "adapter": Reader(peft.WEIGHTS, written(write_adapter, peft.WEIGHTS), read_adapter),
    "fasttext": Reader("model.bin", (FASTTEXT / "ngrams.bin").read_bytes, read_fasttext),
    "fasttext, quantized": Reader("model.ftz", (FASTTEXT / "pruned.ftz").read_bytes, read_fasttext),
    "hugging face config": Reader("config.json", as_json(BERT), opened(), is_json=True),
    "tokenizer config": Reader(
        "tokenizer_config.json", as_json(TOKENIZER), opened(**CONFIG), is_json=True, examples=20
    ),
    "tokenizer.json": Reader(
        "tokenizer.json",
        as_json(ALL_IN_ONE),
        read_all_in_one,
        is_json=True,
        others=("vocab.txt",),
        examples=20,
    ),
    "modules": Reader(
        "modules.json",
        as_json(MODULES),
        opened(**CONFIG, **{"1_Pooling__config.json": POOLING}),
        is_json=True,
        others=("config.json",),
    ),
    "pooling": Reader("1_Pooling/config.json", as_json(POOLING), read_pooling, is_json=True),
    "sentence config": Reader(
        "sentence_bert_config.json",
        as_json({"max_seq_length": 256, "do_lower_case": False}),
        opened(**CONFIG, **{"modules.json": MODULES, "1_Pooling__config.json": POOLING}),
        is_json=True,
    ),
    "options": Reader(
        "keras_transformers.json",
        as_json({"task": "classification", "options": {"pair": True, "max_sequence_length": 9}}),
        opened(**CONFIG),
        is_json=True,
    ),
    "preset": Reader("config.json", as_json(PRESET), opened(), is_json=True),
    "preset of images": Reader("config.json", as_json(IMAGES), opened(), is_json=True),
    "preset's task": Reader(
        "task.json",
        as_json(keras_object("BertTextClassifier", num_classes=3, activation="linear")),
        opened(**{"config.json": PRESET}),
        is_json=True,
    ),
    "preset's preprocessor": Reader(
        "preprocessor.json",
        as_json(keras_object("BertTextClassifierPreprocessor", sequence_length=9)),
        opened(**{"config.json": PRESET}),
        is_json=True,
    ),
    "preset's pixels": Reader(
        "image_converter.json",
        as_json(
            keras_object("ImageConverter", scale=0.1, offset=[0, 1, 2], interpolation="bilinear")
        ),
        opened(**{"config.json": IMAGES}),
        is_json=True,
    ),
    "google config": Reader(
        "bert_config.json",
        as_json({key: value for key, value in BERT.items() if key != "model_type"}),
        lambda path: (read_checkpoint(path), find_weights(path.parent)),
        is_json=True,
    ),
    "google index": Reader(
        INDEX, written(write_checkpoint, INDEX), read_checkpoint, others=("bert_model.ckpt",)
    ),
    "google data": Reader(
        DATA, written(write_checkpoint, DATA), read_checkpoint, others=("bert_model.ckpt",)
    ),
    **{
        f"model garden {kind}": Reader(
            name, of_model_garden(name), read_model_garden, others=("ckpt-1",)
        )
        for kind, name in (("index", "ckpt-1.index"), ("data", "ckpt-1.data-00000-of-00001"))
    },
    **{
        f"opennmt {kind}": Reader(
            name, golden("onmt", f"transformer/{name}"), read_opennmt, others=others
        )
        for kind, name, others in (
            ("configuration", "transformer.yml", ("src.vocab", "tgt.vocab", "run")),
            ("vocabulary", "tgt.vocab", ()),
            ("index", "ckpt-40.index", ("ckpt-40", "run")),
        )
    },
    "gguf": Reader("model.gguf", written(write_gguf, "model.gguf"), read_gguf),
    "llama's gguf": Reader("model.gguf", written(write_llama_gguf, "model.gguf"), read_gguf),
    "llama's config": Reader(
        "config.json",
        llama_config,
        lambda path: family_named("llama").read(path.parent),
        is_json=True,
    ),
    "opennmt description": Reader(
        "model_description.py",
        text("model = lambda: Transformer(num_heads=2, ffn_activation=tf.nn.relu)", ""),
        read_opennmt,
        others=("ckpt-40",),
    ),
    "checkpoint": Reader(
        "checkpoint",
        text('model_checkpoint_path: "ckpt-1"', ""),
        read_latest,
        others=("ckpt-1",),
    ),
    "tf_model.h5": Reader("tf_model.h5", written(write_tf_h5, "tf_model.h5"), read_all),
    "tf_model.h5's index": Reader(
        "tf_model.h5.index.json",
        as_json({"metadata": {}, "weight_map": {"tf_bert_model/bert/pooler/bias:0": TF_PART}}),
        read_all,
        is_json=True,
    ),
    "keras-bert": Reader("model.h5", golden("kb", "kb_lambda_model/model.h5"), read_keras_h5),
    "a user's keras model": Reader("model.h5", golden("user", "model_h5/model.h5"), read_keras_h5),
    "google vit": Reader("vit.npz", written(write_npz, "vit.npz"), find_weights),
}


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_by_name(name, tmp_path, seconds):
    check_reader(name, READERS[name], tmp_path, seconds)
