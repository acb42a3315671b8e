import json
import subprocess
import sys
from pathlib import Path

import keras
import keras_transformers.export
import numpy as np
import pytest
import tensorflow as tf
from keras_transformers.export import classifier
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformers.saved_model import check
from keras_transformers.saved_model.description import METADATA_FILE

LABELS = ["negative", "positive"]

# What a stranger would write: nothing of ours, no Keras model, strings in.
STRANGER = """
import json, sys
import tensorflow as tf, tensorflow_text
signature = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
new = signature(text=tf.constant(["a good film", ""]))
with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
    definition = tf.compat.v1.saved_model.load(session, ["serve"], sys.argv[1]).signature_def[
        "serving_default"]
    old = session.run({k: v.name for k, v in definition.outputs.items()},
                      {definition.inputs["text"].name: [b"a good film", b""]})
assert not [name for name in sys.modules if name.startswith("keras_transformers")]
print(json.dumps([{"label": [x.decode() for x in outputs["label"]],
                   "probabilities": outputs["probabilities"].tolist(),
                   "label_index": outputs["label_index"].tolist()}
                  for outputs in ({k: v.numpy() for k, v in new.items()}, old)]))
"""


@pytest.fixture(scope="module")
def signatures(exported):
    loaded = tf.saved_model.load(str(exported))
    return {name: (loaded, function) for name, function in loaded.signatures.items()}


def run(signatures, name, **inputs):
    return {key: value.numpy() for key, value in signatures[name][1](**inputs).items()}


def records(*texts):
    feature = [tf.train.Feature(bytes_list=tf.train.BytesList(value=[text])) for text in texts]
    return [
        tf.train.Example(features=tf.train.Features(feature={"text": f})).SerializeToString()
        for f in feature
    ]


def meta_graph(folder):
    parsed = saved_model_pb2.SavedModel()
    parsed.ParseFromString((folder / "saved_model.pb").read_bytes())
    return parsed.meta_graphs[0]


def nodes(folder):
    graph = meta_graph(folder).graph_def
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def test_a_process_without_this_package_gets_the_models_answers(exported, model, tokenizer):
    process = subprocess.run(
        [sys.executable, "-I", "-c", STRANGER, str(exported)], capture_output=True, check=True
    )
    tokens = tokenizer(tf.constant(["a good film", ""]), max_sequence_length=16)
    probabilities = tf.nn.softmax(model(tokens, training=False)["logits"]).numpy()
    answers = json.loads(process.stdout.splitlines()[-1])
    assert len(answers) == 2
    for answer in answers:
        np.testing.assert_allclose(answer["probabilities"], probabilities, atol=1e-5)
        assert answer["label_index"] == probabilities.argmax(-1).tolist()
        assert answer["label"] == [LABELS[i] for i in probabilities.argmax(-1)]


def test_all_signatures_agree(signatures):
    texts = [b"a good film", b"very bad films", b"!"]
    text = run(signatures, "serving_default", text=tf.constant(texts))
    assert text["label"].dtype == object
    assert text["probabilities"].dtype == np.float32
    assert text["label_index"].dtype == np.int32
    assert len({*text["label_index"].tolist()}) == 2
    ranked = run(signatures, "classify", inputs=tf.constant(records(*texts)))
    np.testing.assert_allclose(ranked["scores"], text["probabilities"], atol=1e-6)
    assert ranked["classes"].tolist() == [[b"negative", b"positive"]] * 3
    tokens = run(
        signatures,
        "tokens",
        token_ids=tf.constant([[2, 5, 7, 6, 3]]),  # [CLS] a good film [SEP]
        segment_ids=tf.zeros([1, 5], tf.int32),
        padding_mask=tf.ones([1, 5], tf.bool),
    )
    # Not to the last bit: above, the row was padded and its sums were added in another order.
    np.testing.assert_allclose(tokens["probabilities"], text["probabilities"][:1], atol=1e-5)
    assert tokens["label"][0] == text["label"][0]


@pytest.mark.parametrize("texts", [[], [""], [b"\xff\xfe\x00", b"\xc3("], ["long " * 3000]])
def test_any_text_has_an_answer(signatures, texts):
    count = len(texts)
    text = run(signatures, "serving_default", text=tf.constant(texts, tf.string))
    ranked = run(
        signatures,
        "classify",
        inputs=tf.constant(
            records(*(t.encode() if isinstance(t, str) else t for t in texts)), tf.string
        ),
    )
    for answer, key in ((text, "probabilities"), (ranked, "scores")):
        assert answer[key].shape == (count, 2)
        np.testing.assert_allclose(answer[key].sum(-1), np.ones(count), atol=1e-5)
    assert text["label"].shape == text["label_index"].shape == (count,)
    assert ranked["classes"].shape == (count, 2)


def test_an_empty_batch_of_tokens_has_an_empty_answer(signatures):
    answer = run(
        signatures,
        "tokens",
        token_ids=tf.zeros([0, 4], tf.int32),
        segment_ids=tf.zeros([0, 4], tf.int32),
        padding_mask=tf.zeros([0, 4], tf.bool),
    )
    assert {name: value.shape for name, value in answer.items()} == {
        "label": (0,),
        "probabilities": (0, 2),
        "label_index": (0,),
    }


@pytest.mark.parametrize(
    ("token_ids", "changes", "text"),
    [
        ([[2, 14, 3]], {}, "token_ids beyond the 14 tokens"),
        ([[2, -1, 3]], {}, "token_ids below 0"),
        ([[2] * 17], {}, "token_ids are longer than the 16 positions"),
        ([[]], {}, "token_ids have length 0"),
        ([[2, 3]], {"padding_mask": [[True]]}, "padding_mask and token_ids differ in shape"),
        ([[2, 3]], {"segment_ids": [[0], [0]]}, "segment_ids and token_ids differ in shape"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(signatures, token_ids, changes, text):
    given = {
        "token_ids": token_ids,
        "segment_ids": np.zeros_like(token_ids),
        "padding_mask": np.ones_like(token_ids),
    } | changes
    dtypes = {"token_ids": tf.int32, "segment_ids": tf.int32, "padding_mask": tf.bool}
    tensors = {name: tf.cast(tf.constant(given[name]), dtype) for name, dtype in dtypes.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        run(signatures, "tokens", **tensors)


def test_an_example_without_text_is_refused(signatures):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"text.*required"):
        run(signatures, "classify", inputs=tf.constant([b""]))


def test_classify_has_the_name_and_the_shapes_that_tf_serving_asks_for(exported):
    definition = meta_graph(exported).signature_def["classify"]
    assert definition.method_name == "tensorflow/serving/classify"
    assert list(definition.inputs) == ["inputs"]
    assert sorted(definition.outputs) == ["classes", "scores"]
    for output, dtype in (("classes", types_pb2.DT_STRING), ("scores", types_pb2.DT_FLOAT)):
        assert definition.outputs[output].dtype == dtype
        assert [d.size for d in definition.outputs[output].tensor_shape.dim] == [-1, 2]
    for name in ("serving_default", "tokens"):
        method_name = meta_graph(exported).signature_def[name].method_name
        assert method_name == "tensorflow/serving/predict"


def test_no_stale_fingerprint(exported):
    with pytest.raises(FileNotFoundError):
        tf.saved_model.experimental.read_fingerprint(str(exported))


def test_string_ops_are_pinned_to_the_cpu(exported):
    # These pass strings along between the outside and the functions.
    plumbing = {"Placeholder", "Identity", "StatefulPartitionedCall", "PartitionedCall"}
    pinned = 0
    for node in nodes(exported):
        attributes = node.attr.values()
        types = {a.type for a in attributes} | {t for a in attributes for t in a.list.type}
        if types_pb2.DT_STRING in types and node.op not in plumbing:
            assert "device:CPU" in node.device, node.name
            pinned += 1
    assert pinned > 10


def test_only_ops_that_stock_tf_serving_has(exported):
    found = {node.op for node in nodes(exported)}
    core = {op for op in found if not op.startswith(("Fast", "TFText", "Sentencepiece"))}
    assert found - core == {"FastBertNormalize", "FastWordpieceTokenizeWithOffsets"}
    assert not {op for op in core if "PyFunc" in op or "Lookup" in op or ">" in op}


def test_metadata_tell_what_was_exported(exported, model, tokenizer):
    metadata = json.loads((exported / METADATA_FILE).read_text())
    assert metadata["task"] == "classification"
    assert metadata["labels"] == LABELS
    assert metadata["model"]["name"] == "bert_classifier"
    assert metadata["model"]["num_parameters"] == model.count_params()
    assert metadata["max_sequence_length"] == 16
    assert metadata["vocabulary_size"] == 14
    assert len(metadata["vocabulary_sha256"]) == 64
    awkward = metadata["signatures"]["serving_default"]["examples"][1]["inputs"]["text"]
    assert check.decode_array(awkward).tolist()[1] == b"\xff\xfe is no UTF-8 \x00"


def test_vocabulary_checksum_is_the_files(exported, tokenizer, tmp_path):
    file = tmp_path / "vocab.txt"
    file.write_text("".join(token + "\n" for token in tokenizer.vocabulary))
    printed = subprocess.run(["sha256sum", file], capture_output=True, check=True, text=True)
    metadata = json.loads((exported / METADATA_FILE).read_text())
    assert metadata["vocabulary_sha256"] == printed.stdout.split()[0]


def test_pairs(exported_pair, make_classifier, tokenizer):
    assert exported_pair.name == "7"
    assert list(check.failures(str(exported_pair))) == []
    loaded = tf.saved_model.load(str(exported_pair))
    text, text_b = tf.constant(["a film", "good"]), tf.constant(["good", "a film"])
    one = loaded.signatures["serving_default"](text=text, text_b=text_b)
    tokens = tokenizer(text, text_b, max_sequence_length=9)
    expected = tf.nn.softmax(make_classifier(3)(tokens, training=False)["logits"]).numpy()
    np.testing.assert_allclose(one["probabilities"], expected, atol=1e-5)
    assert abs(expected[0] - expected[1]).max() > 1e-3  # which text comes first matters
    example = tf.train.Example()
    for name, text in (("text", b"a film"), ("text_b", b"good")):
        example.features.feature[name].bytes_list.value.append(text)
    ranked = loaded.signatures["classify"](inputs=tf.constant([example.SerializeToString()]))
    np.testing.assert_allclose(ranked["scores"], one["probabilities"][:1], atol=1e-6)
    assert ranked["classes"].numpy().tolist() == [[b"entailment", b"neutral", b"contradiction"]]


def test_longer_texts_are_trimmed_to_the_length_asked_for(exported_pair):
    assert json.loads((exported_pair / METADATA_FILE).read_text())["max_sequence_length"] == 9
    function = tf.saved_model.load(str(exported_pair)).signatures["serving_default"]
    answer = function(
        text=tf.constant(["a film " * 2, "a film " * 3]), text_b=tf.constant(["good " * 3] * 2)
    )
    first, second = answer["probabilities"].numpy()
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_bfloat16_models_pass_their_wider_tolerance(make_classifier, tokenizer, tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = make_classifier()
    finally:
        keras.config.set_dtype_policy("float32")
    folder = classifier(model, tokenizer, LABELS, tmp_path, check=False)
    assert json.loads((folder / METADATA_FILE).read_text())["tolerance"] == 2e-2
    assert list(check.failures(str(folder))) == []


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (["negative"], r"1 labels \['negative'\] for the 2 classes of model 'bert_classifier'"),
        (["a", "b", "c"], "3 labels .* for the 2 classes"),
        (["same", "same"], r"labels \['same'\] occur more than once"),
        (["a", ""], r"not empty, not \[''\]"),
        ([0, 1], r"must be strings that are not empty, not \[0, 1\]"),
        ("no", "must be strings that are not empty, not 'no'"),
    ],
)
def test_labels_that_do_not_fit(model, tokenizer, tmp_path, labels, text):
    with pytest.raises(ValueError, match=text):
        classifier(model, tokenizer, labels, tmp_path / "base")
    assert not (tmp_path / "base").exists()


def test_a_vocabulary_of_another_size(make_classifier, tokenizer, tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer has 14 tokens and model .* embeds 99"):
        classifier(make_classifier(vocabulary_size=99), tokenizer, LABELS, tmp_path)


@pytest.mark.parametrize(("length", "pair"), [(17, False), (2, False), (4, True), (0, False)])
def test_lengths_that_do_not_fit(model, tokenizer, tmp_path, length, pair):
    with pytest.raises(ValueError, match=rf"max_sequence_length={length}: .* at most 16"):
        classifier(model, tokenizer, LABELS, tmp_path, max_sequence_length=length, pair=pair)


@pytest.mark.parametrize(
    ("examples", "pair", "text"),
    [
        ([("a", "b")], False, r"examples must be strings, not \('a', 'b'\)"),
        (["a"], True, r"must be pairs of strings .*, not \('a',\)"),
        ([("a", "b", "c")], True, "must be pairs"),
        ([3], False, "must be strings, not 3"),
    ],
)
def test_examples_that_do_not_fit(model, tokenizer, tmp_path, examples, pair, text):
    with pytest.raises(ValueError, match=text):
        classifier(model, tokenizer, LABELS, tmp_path, examples=examples, pair=pair)


def test_a_model_that_is_no_classifier(tokenizer, tmp_path):
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs), name="table")
    with pytest.raises(ValueError, match=r"'table' must take token_ids, .* and return logits"):
        classifier(model, tokenizer, LABELS, tmp_path)


def test_public_names_are_found_without_loading_tensorflow():
    program = (
        "import sys, keras_transformers.export as e; assert {'classifier', 'predict'} <= {*dir(e)};"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    for name in keras_transformers.export.__all__:
        assert callable(getattr(keras_transformers.export, name))
    modules = Path(keras_transformers.export.__file__).parent.glob("*.py")
    assert not {module.stem for module in modules} & set(keras_transformers.export.__all__)
    with pytest.raises(AttributeError, match="no attribute 'translater'"):
        _ = keras_transformers.export.translater
