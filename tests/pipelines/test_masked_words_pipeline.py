import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from keras_transformers.export import Predictor, fill_mask
from pretrained_models import lively_encoder, lively_pretrainer

from keras_transformers.models import heads
from keras_transformers.pipelines.masked_words import tokenize
from keras_transformers.saved_model.description import METADATA_FILE
from keras_transformers.tokenizers import WordPieceTokenizer

GOLDEN = Path(__file__).parents[1] / "golden"

# What a stranger would write: nothing of ours, no Keras model, strings in.
STRANGER = """
import json, sys
import tensorflow as tf, tensorflow_text
texts = ["a [MASK] film", "[MASK]", "very [MASK] [MASK]!", "no mask"]
signature = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
new = {k: v.numpy() for k, v in signature(text=tf.constant(texts)).items()}
with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
    definition = tf.compat.v1.saved_model.load(session, ["serve"], sys.argv[1]).signature_def[
        "serving_default"]
    old = session.run({k: v.name for k, v in definition.outputs.items()},
                      {definition.inputs["text"].name: [t.encode() for t in texts]})
assert not [name for name in sys.modules if name.startswith("keras_transformers")]
print(json.dumps([{"tokens": [[[t.decode() for t in mask] for mask in row] for row in o["tokens"]],
                   "probabilities": o["probabilities"].tolist(),
                   "num_masks": o["num_masks"].tolist()} for o in (new, old)]))
"""


@pytest.fixture(scope="module")
def pretrainer():
    return lively_pretrainer()


@pytest.fixture(scope="module")
def exported(pretrainer, tokenizer, tmp_path_factory):
    """A checked export: read only."""
    return fill_mask(pretrainer, tokenizer, tmp_path_factory.mktemp("base"), top_k=3)


@pytest.fixture(scope="module")
def signatures(exported):
    loaded = tf.saved_model.load(str(exported))
    return {name: (loaded, function) for name, function in loaded.signatures.items()}


def run(signatures, name, **inputs):
    return {key: value.numpy() for key, value in signatures[name][1](**inputs).items()}


def fill(signatures, texts):
    return run(signatures, "serving_default", text=tf.constant(texts, tf.string))


def expected_answers(model, tokenizer, rows, top_k):
    """Of rows of token ids that are full, each mask by itself: [(tokens, probabilities), ...]."""
    answers = []
    for token_ids in rows:
        places = [i for i, token in enumerate(token_ids) if token == tokenizer.mask_token_id]
        inputs = {
            "token_ids": np.array([token_ids]),
            "segment_ids": np.zeros((1, len(token_ids)), "int32"),
            "padding_mask": np.ones((1, len(token_ids)), bool),
            "mask_positions": np.array([places]),
        }
        for logits in model(inputs)["mask_logits"][0].numpy().astype("float64"):
            probabilities = np.exp(logits) / np.exp(logits).sum()
            best = np.argsort(-probabilities)[:top_k]
            answers.append(
                ([tokenizer.vocabulary[i].encode() for i in best], probabilities[best].tolist())
            )
    return answers


# ids: [PAD] [UNK] [CLS] [SEP] [MASK] a film good bad long very ##s . !
ROWS = [[2, 5, 4, 6, 3], [2, 4, 3], [2, 10, 4, 4, 13, 3]]
TEXTS = ["a [MASK] film", "[MASK]", "very [MASK] [MASK]!"]


def test_a_process_without_this_package_gets_the_models_answers(exported, pretrainer, tokenizer):
    process = subprocess.run(
        [sys.executable, "-I", "-c", STRANGER, str(exported)], capture_output=True, check=True
    )
    expected = expected_answers(pretrainer, tokenizer, ROWS, 3)
    assert len({tuple(tokens) for tokens, _ in expected}) > 1  # not trivial
    answers = json.loads(process.stdout.splitlines()[-1])
    assert len(answers) == 2
    for answer in answers:
        assert answer["num_masks"] == [1, 1, 2, 0]
        found = [(row, mask) for row, count in enumerate([1, 1, 2]) for mask in range(count)]
        for (row, mask), (tokens, probabilities) in zip(found, expected, strict=True):
            assert answer["tokens"][row][mask] == [token.decode() for token in tokens]
            np.testing.assert_allclose(answer["probabilities"][row][mask], probabilities, atol=1e-5)
        for row, mask in ((0, 1), (1, 1), (3, 0), (3, 1)):  # beyond a row's masks
            assert answer["tokens"][row][mask] == [""] * 3
            assert answer["probabilities"][row][mask] == [0.0] * 3


def test_types_and_order(signatures):
    answer = fill(signatures, TEXTS)
    assert answer["tokens"].shape == answer["probabilities"].shape == (3, 2, 3)
    assert answer["tokens"].dtype == object
    assert answer["probabilities"].dtype == np.float32
    assert answer["num_masks"].dtype == np.int32
    assert (np.diff(answer["probabilities"]) <= 0).all()
    assert (answer["probabilities"].sum(-1) <= 1 + 1e-6).all()


@pytest.mark.parametrize(
    ("texts", "num_masks"),
    [
        ([], []),
        ([""], [0]),
        (["no mask", " "], [0, 0]),
        ([b"\xff[MASK]\xfe\x00", b"\xc3(["], [1, 0]),
        (["[mask] [ MASK ] [MASK", "un[MASK]able"], [0, 1]),
        (["[MASK]" * 3000], [14]),
    ],
)
def test_any_text_has_an_answer(signatures, texts, num_masks):
    answer = fill(signatures, texts)
    assert answer["num_masks"].tolist() == num_masks
    assert answer["tokens"].shape == (len(texts), max(num_masks, default=0), 3)
    for row, count in enumerate(num_masks):
        assert (answer["tokens"][row, :count] != b"").all()
        assert (answer["tokens"][row, count:] == b"").all()
        assert (answer["probabilities"][row, :count] > 0).all()
        assert (answer["probabilities"][row, count:] == 0).all()


def test_a_mask_that_trimming_cuts_off_is_not_counted(signatures):
    # 16 positions hold 14 tokens between [CLS] and [SEP].
    texts = ["[MASK] " + "long " * 12 + "[MASK]", "[MASK] " + "long " * 13 + "[MASK]"]
    assert fill(signatures, texts)["num_masks"].tolist() == [2, 1]


def test_neighbours_in_a_batch_change_nothing(signatures):
    together = fill(signatures, TEXTS)
    for row, text in enumerate(TEXTS):
        alone = fill(signatures, [text])
        count = alone["num_masks"][0]
        assert together["tokens"][row, :count].tolist() == alone["tokens"][0].tolist()
        np.testing.assert_allclose(
            together["probabilities"][row, :count], alone["probabilities"][0], atol=1e-6
        )


def test_tokens_in_place_of_text(signatures):
    answer = run(
        signatures,
        "tokens",
        token_ids=tf.constant([[2, 10, 4, 4, 13, 3, 4]]),  # a [MASK] behind the padding's start
        segment_ids=tf.zeros([1, 7], tf.int32),
        padding_mask=tf.constant([[True] * 6 + [False]]),
    )
    text = fill(signatures, TEXTS[2:])
    assert answer["num_masks"].tolist() == [2]
    assert answer["tokens"].tolist() == text["tokens"].tolist()
    np.testing.assert_allclose(answer["probabilities"], text["probabilities"], atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="token_ids beyond the 14 tokens"):
        run(
            signatures,
            "tokens",
            token_ids=tf.constant([[2, 14, 3]]),
            segment_ids=tf.zeros([1, 3], tf.int32),
            padding_mask=tf.ones([1, 3], tf.bool),
        )


def test_predict_answers_in_json(exported):
    rows = Predictor(exported)({"text": TEXTS})
    assert json.loads(json.dumps(rows)) == rows
    assert [row["num_masks"] for row in rows] == [1, 1, 2]
    assert isinstance(rows[0]["tokens"][0][0], str)


def test_a_pretrainer_is_cut_to_what_is_needed(exported, pretrainer):
    metadata = json.loads((exported / METADATA_FILE).read_text())
    without = 8 * 8 + 8 + 2 * 8 + 2  # pooler, next sentence
    assert metadata["model"]["num_parameters"] == pretrainer.count_params() - without
    assert metadata["task"] == "fill_mask"
    assert metadata["top_k"] == 3
    names = {name for name, _ in tf.train.list_variables(str(exported / "variables/variables"))}
    assert sum("raw_variables" in name for name in names) == len(pretrainer.weights) - 4


def test_a_masked_lm_and_its_own_length(tokenizer, tmp_path):
    model = heads.masked_lm(lively_encoder())
    folder = fill_mask(
        model,
        tokenizer,
        tmp_path / "7",
        top_k=14,
        max_sequence_length=5,
        examples=["a [MASK]"],
        check=False,
    )
    assert folder.name == "7"
    (row,) = Predictor(folder)({"text": ["a good film [MASK]"]})
    assert row["num_masks"] == 0
    (row,) = Predictor(folder)({"text": ["a good [MASK] film"]})
    assert sorted(row["tokens"][0]) == sorted(tokenizer.vocabulary)
    assert sum(row["probabilities"][0]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("top_k", [0, 15])
def test_top_k_out_of_range(pretrainer, tokenizer, tmp_path, top_k):
    with pytest.raises(ValueError, match=rf"top_k={top_k}: give from 1 to 14"):
        fill_mask(pretrainer, tokenizer, tmp_path / "base", top_k=top_k)
    assert not (tmp_path / "base").exists()


# --- [MASK] in a text --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mask_tokens():
    return runpy.run_path(str(GOLDEN / "make_mask_tokens.py"))


def test_masks_in_texts_are_those_of_hugging_face(mask_tokens):
    golden = json.loads((GOLDEN / "mask_tokens.json").read_text())
    tokenizer = WordPieceTokenizer(mask_tokens["VOCABULARY"])
    assert sorted(golden, key=int) == [str(length) for length in mask_tokens["LENGTHS"]]
    in_graph = tf.function(lambda text, length: tokenize(tokenizer, text, length))
    for length, expected in golden.items():
        for function in (tokenize, lambda _, text, length: in_graph(text, length)):
            packed = function(tokenizer, tf.constant(mask_tokens["TEXTS"]), int(length))
            rows = tf.ragged.boolean_mask(packed["token_ids"], packed["padding_mask"]).to_list()
            for text, row, ids in zip(mask_tokens["TEXTS"], rows, expected, strict=True):
                assert row == ids, (text, length)
            assert not packed["segment_ids"].numpy().any()
    paris = golden["32"][0]
    assert [mask_tokens["VOCABULARY"][i] for i in paris] == (
        ["[CLS]", "paris", "is", "the", "[MASK]", "of", "france", ".", "[SEP]"]
    )


def test_without_masks_it_is_the_tokenizers_own(tokenizer):
    texts = ["a good film", "", b"\xffvery\xfe", "[SEP] [mask]", "long " * 40]
    ours, own = tokenize(tokenizer, texts, 16), tokenizer(texts, max_sequence_length=16)
    for name, value in own.items():
        np.testing.assert_array_equal(ours[name], value)


@pytest.mark.reference
def test_the_golden_mask_tokens_are_transformers_own(mask_tokens):
    pytest.importorskip("transformers", reason="needs pip install -e .[reference]")
    assert mask_tokens["golden"]() == json.loads((GOLDEN / "mask_tokens.json").read_text())
