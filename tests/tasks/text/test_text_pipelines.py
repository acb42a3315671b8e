"""What all text pipelines have in common."""

import json
import math
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from answer_checks import restored, same_answers, texts_by_name, typed_answers
from graph_checks import only_ops_that_stock_tf_serving_has, strings_are_pinned_to_the_cpu
from pretrained_models import (
    PIPELINES,
    in_bfloat16,
    lively_chooser,
    lively_classifier,
    lively_encoder,
    lively_pretrainer,
)

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.pipelines import (
    Embedder,
    MaskFiller,
    MultipleChoice,
    NextSentenceClassifier,
    TextClassifier,
    TextRegressor,
)
from keras_transformers.results import (
    Choice,
    Classification,
    Embedding,
    MaskedTokens,
    NextSentence,
    Regression,
)
from keras_transformers.saved_model.checks import check
from keras_transformers.saved_model.description import METADATA_FILE

RESULTS = {
    "classification": Classification,
    "bfloat16": Classification,
    "pairs": Classification,
    "fasttext": Classification,
    "regression": Regression,
    "multiple_choice": Choice,
    "next_sentence": NextSentence,
    "embedding": Embedding,
    "fill_mask": MaskedTokens,
}
EXPORTED = [name for name in PIPELINES if name != "pairs"]  # other exports take pairs
FAST = ("classification",)  # its export is checked in every test run
TEXTS = [
    *("a good [MASK]", "", b"\xff\xfe\x00", "long " * 3000),
    *("very bad films!", "[MASK] [MASK]", "a film", "good"),
]
# A stranger's program: none of our code, no Keras model, strings in. Then every export repeats its
# stored examples, still without Keras and our models.
STRANGER = """
import json, sys
import tensorflow as tf, tensorflow_text

def plain(array):
    decoded = lambda value: value.decode() if isinstance(value, bytes) else [*map(decoded, value)]
    return decoded(array.tolist()) if array.dtype == object else array.tolist()

answers = {}
given, folders, package = map(json.loads, sys.argv[1:])
for name, (folder, texts) in given.items():
    signature = tf.saved_model.load(folder).signatures["serving_default"]
    new = signature(**{k: tf.constant(v) for k, v in texts.items()})
    coded = lambda value: value.encode() if isinstance(value, str) else [*map(coded, value)]
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        definition = tf.compat.v1.saved_model.load(session, ["serve"], folder).signature_def[
            "serving_default"]
        old = session.run({k: v.name for k, v in definition.outputs.items()},
                          {definition.inputs[k].name: coded(v) for k, v in texts.items()})
    new = {k: v.numpy() for k, v in new.items()}
    answers[name] = [{k: plain(v) for k, v in outputs.items()} for outputs in (new, old)]
assert not [name for name in sys.modules if name.startswith("keras_transformers")]

sys.path.append(package)
from keras_transformers.saved_model.checks.check import failures
ours = [name for name in sys.modules if name.startswith("keras_transformers")]
sys.modules.update(dict.fromkeys([*ours, "keras", "keras_transformers"]))  # None: not to be found
print(json.dumps([answers, {name: [*failures(folder)] for name, folder in folders.items()}]))
"""


@pytest.fixture(scope="module")
def stranger(pipelines, exports):
    """The answers of a process without this package, its texts, and its failures."""
    given = {}
    for name in ("classification", "fill_mask", "multiple_choice"):
        texts = columns(pipelines(name), ["a [MASK] film", "", "very [MASK] [MASK]!", "good"])
        given[name] = str(exports(name)), texts_by_name(pipelines(name), texts)
    folders = {name: str(exports(name)) for name in EXPORTED}
    package = str(Path(kt.__file__).parents[1])
    process = subprocess.run(
        [sys.executable, "-I", "-c", STRANGER, *map(json.dumps, (given, folders, package))],
        stdout=subprocess.PIPE,
        check=True,
    )
    answers, failures = json.loads(process.stdout.splitlines()[-1])
    return answers, {name: texts for name, (_, texts) in given.items()}, failures


def slow_but(fast, names):
    """Returns names as parameters; those not in `fast` are slow."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def columns(pipeline, texts=TEXTS):
    """Returns the texts, and for pairs the same texts in another order, or choices for each."""
    if "choices" in pipeline.text_names:
        return [texts, [[text, "a film", "very good"] for text in texts]]
    return [texts, texts[1:] + texts[:1]][: len(pipeline.text_names)]


@pytest.mark.parametrize("name", slow_but(FAST, EXPORTED))
def test_the_export_answers_as_the_pipeline_does(pipelines, exports, name):
    pipeline = pipelines(name)
    texts = columns(pipeline)
    answers = pipeline(*texts)
    assert {type(answer) for answer in answers} == {RESULTS[name]}
    served = tf.saved_model.load(str(exports(name))).signatures["serving_default"]
    outputs = served(**texts_by_name(pipeline, map(tf.constant, texts)))
    arrays = {key: value.numpy() for key, value in outputs.items()}
    same_answers(typed_answers(arrays, pipeline), answers, tolerance=pipeline.tolerance)
    one = pipeline(*(column[0] for column in texts))
    same_answers([one], answers[:1], tolerance=pipeline.tolerance)


@pytest.mark.slow
def test_a_process_without_this_package_gets_the_same_answers(pipelines, stranger):
    answers, given, _ = stranger
    for name, texts in given.items():
        wanted = pipelines(name).answer(**{key: tf.constant(v) for key, v in texts.items()})
        assert len(answers[name]) == 2
        for outputs in answers[name]:
            assert outputs.keys() == wanted.keys()
            for key, value in wanted.items():
                if value.dtype == tf.string:
                    assert outputs[key] == np.char.decode(value.numpy().astype(bytes)).tolist()
                else:
                    np.testing.assert_allclose(outputs[key], value, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_stored_examples_are_repeated_by_both_loaders(exports, stranger, name):
    *_, failures = stranger
    assert failures[name] == []
    metadata = json.loads((exports(name) / METADATA_FILE).read_text())
    for signature in metadata["signatures"].values():
        sizes = [next(iter(e["inputs"].values()))["shape"][0] for e in signature["examples"]]
        assert 0 in sizes  # the empty batch
        assert max(sizes) >= 3


@pytest.mark.parametrize("name", slow_but(FAST, [n for n in EXPORTED if n != "fasttext"]))
def test_the_graph_runs_in_stock_tf_serving_also_beside_a_gpu(exports, name):
    only_ops_that_stock_tf_serving_has(exports(name))
    strings_are_pinned_to_the_cpu(exports(name))


@pytest.mark.one_case
@pytest.mark.parametrize("name", PIPELINES)
def test_saving_and_loading_change_nothing(pipelines, tmp_path, name):
    pipeline = pipelines(name)
    again = restored(pipeline, tmp_path / "saved", *columns(pipeline))
    again.save(tmp_path / "once more")
    for file in (tmp_path / "saved").iterdir():
        assert (tmp_path / "once more" / file.name).read_bytes() == file.read_bytes()


# What each pipeline removes from its model.
PARTS = {
    NextSentenceClassifier: ("masked_lm_dense", "masked_lm_norm", "mask_logits"),
    Embedder: ("pooler",),
    MaskFiller: ("pooler", "next_sentence_logits"),
}


@pytest.mark.parametrize("make", PARTS)
def test_only_the_needed_part_of_a_model_is_kept(tokenizer, make):
    model = lively_encoder() if make is Embedder else lively_pretrainer()
    pipeline = make(model, tokenizer)
    dropped = sum(model.get_layer(layer).count_params() for layer in PARTS[make])
    assert pipeline.model.count_params() == model.count_params() - dropped
    assert pipeline.model.name == model.name


@pytest.mark.parametrize("name", slow_but(FAST, ["next_sentence", "embedding", "fill_mask"]))
def test_an_export_holds_that_part_and_no_more(pipelines, exports, name):
    metadata = json.loads((exports(name) / METADATA_FILE).read_text())
    model = pipelines(name).model
    assert metadata["model"]["num_parameters"] == model.count_params()
    assert metadata["model"]["name"] == model.name
    assert metadata["max_sequence_length"] == 16
    assert metadata["vocabulary_size"] == 14
    file = exports(name) / "variables/variables"
    stored = [x for name, x in tf.train.list_variables(str(file)) if "raw_variables" in name]
    assert sum(math.prod(shape) for shape in stored) == model.count_params()


@pytest.mark.slow
def test_bfloat16_models_have_a_wider_tolerance(pipelines, exports):
    metadata = json.loads((exports("bfloat16") / METADATA_FILE).read_text())
    assert metadata["tolerance"] == pipelines("bfloat16").tolerance == 2e-2


@pytest.mark.slow
def test_an_embedder_in_bfloat16_too(tokenizer, tmp_path):
    embed = Embedder(in_bfloat16(lively_encoder), tokenizer)
    folder = kt.export(embed, tmp_path, check=False)
    assert json.loads((folder / METADATA_FILE).read_text())["tolerance"] == 2e-2
    assert list(check.failures(str(folder))) == []


# --- the constructor refuses what does not match -------------------------------------------------


def classifier(model, tokenizer, **options):
    return TextClassifier(model, tokenizer, ["a", "b"], **options)


# Each with a model that it takes, for any vocabulary size, and the output it needs.
MAKERS = {
    classifier: (lively_classifier, "logits"),
    TextRegressor: (
        lambda **arguments: heads.regressor(lively_encoder(**arguments)),
        "score",
    ),
    MultipleChoice: (lively_chooser, "logits"),
    NextSentenceClassifier: (lively_pretrainer, "next_sentence_logits"),
    MaskFiller: (lively_pretrainer, "mask_logits"),
    Embedder: (lively_encoder, None),
}


@pytest.mark.parametrize("make", MAKERS)
def test_vocabularies_and_lengths_that_do_not_fit(tokenizer, make):
    build, _ = MAKERS[make]
    with pytest.raises(ValueError, match=r"tokenizer has 14 tokens but model .* embeds 13"):
        make(build(vocabulary_size=13), tokenizer)
    model, pair = build(), make in (MultipleChoice, NextSentenceClassifier)
    for length in (17, 4 if pair else 2, 0):
        with pytest.raises(ValueError, match=rf"max_sequence_length={length}: .* at most 16"):
            make(model, tokenizer, max_sequence_length=length)
    if make in (classifier, TextRegressor):
        with pytest.raises(ValueError, match="max_sequence_length=4: expected.*5"):
            make(model, tokenizer, max_sequence_length=4, pair=True)


@pytest.mark.parametrize("make", [make for make, (_, output) in MAKERS.items() if output])
def test_models_that_lack_the_head(tokenizer, make):
    _, output = MAKERS[make]
    for model in (lively_encoder(), table()):
        match = rf"'{model.name}' must take token_ids.* and return {output}"
        with pytest.raises(ValueError, match=match):
            make(model, tokenizer)


def test_a_model_that_is_no_encoder_embeds_nothing(tokenizer):
    with pytest.raises(ValueError, match="'table'.*'sequence_output'"):
        Embedder(table(), tokenizer)


def table():
    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(2)(inputs), name="table")


def test_inputs_that_the_tokenizer_does_not_make(tokenizer):
    class WithoutSegments:
        vocabulary_size = 14
        num_special_tokens = tokenizer.num_special_tokens

        def pack(self, segments, *, max_sequence_length):
            packed = tokenizer.pack(segments, max_sequence_length=max_sequence_length)
            return {name: packed[name] for name in ("token_ids", "padding_mask")}

    with pytest.raises(ValueError, match="segment_ids,.*WithoutSegments.*make"):
        classifier(lively_classifier(), WithoutSegments())


@pytest.mark.parametrize(
    ("examples", "name", "text"),
    [
        ([("a", "b")], "classification", r"examples must be strings, not \('a', 'b'\)"),
        ([3], "classification", "must be strings, not 3"),
        ([3], "embedding", "must be strings, not 3"),
        ([3], "fill_mask", "must be strings, not 3"),
        (["a"], "pairs", r"\(text, text_b\), not \('a',\)"),
        ([("a", "b", "c")], "regression", "must be tuples"),
        ([3], "next_sentence", "must be tuples"),
        ([("a", "b")], "multiple_choice", r"must be tuples \(text, choices\), not \('a', 'b'\)"),
        ([("a", ["b", 3])], "multiple_choice", "choices .*list of strings"),
    ],
)
def test_examples_that_do_not_fit(pipelines, tmp_path, examples, name, text):
    with pytest.raises(ValueError, match=text):
        kt.export(pipelines(name), tmp_path / "base", examples=examples)
    assert not (tmp_path / "base").exists()
