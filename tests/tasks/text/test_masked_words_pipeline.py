import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from pretrained_models import VOCABULARY, lively_encoder, lively_pretrainer

from keras_transformers import heads
from keras_transformers.pipelines import MaskFiller
from keras_transformers.saved_model.description import METADATA_FILE
from keras_transformers.tokenizers import WordPieceTokenizer

GOLDEN = Path(__file__).parents[2] / "golden"
# ids: [PAD] [UNK] [CLS] [SEP] [MASK] a film good bad long very ##s . !
ROWS = [[2, 5, 4, 6, 3], [2, 4, 3], [2, 10, 4, 4, 13, 3]]
TEXTS = ["a [MASK] film", "[MASK]", "very [MASK] [MASK]!"]


@pytest.fixture(scope="module")
def fill(pipelines):
    return pipelines("fill_mask")


@pytest.fixture(scope="module")
def answer(run):
    """Texts -> the export's answers."""
    return lambda texts: run("fill_mask", text=tf.constant(texts, tf.string))


def expected_answers(model, tokenizer, rows, top_k):
    """Fills each mask in full rows of token ids by itself: [(tokens, probabilities), ...]."""
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
            tokens = [tokenizer.vocabulary[i] for i in best]
            answers.append((tokens, probabilities[best].tolist()))
    return answers


def test_answers_are_the_models(fill, tokenizer):
    expected = expected_answers(fill.model, tokenizer, ROWS, 3)
    assert len({tuple(tokens) for tokens, _ in expected}) > 1  # not trivial
    answers = fill([*TEXTS, "no mask"])
    assert [len(found.tokens) for found in answers] == [1, 1, 2, 0]
    masks = [
        mask for found in answers for mask in zip(found.tokens, found.probabilities, strict=True)
    ]
    for (tokens, probabilities), (wanted, numbers) in zip(masks, expected, strict=True):
        assert tokens == wanted
        np.testing.assert_allclose(probabilities, numbers, atol=1e-5)


def test_types_order_and_what_is_beyond_a_rows_masks(answer):
    found = answer([*TEXTS, "no mask"])
    assert found["tokens"].shape == found["probabilities"].shape == (4, 2, 3)
    assert found["tokens"].dtype == object
    assert found["probabilities"].dtype == np.float32
    assert found["num_masks"].dtype == np.int32
    assert found["num_masks"].tolist() == [1, 1, 2, 0]
    assert (np.diff(found["probabilities"]) <= 0).all()
    assert (found["probabilities"].sum(-1) <= 1 + 1e-6).all()
    for row, mask in ((0, 1), (1, 1), (3, 0), (3, 1)):
        assert found["tokens"][row, mask].tolist() == [b""] * 3
        assert found["probabilities"][row, mask].tolist() == [0.0] * 3


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
def test_any_text_has_an_answer(answer, texts, num_masks):
    found = answer(texts)
    assert found["num_masks"].tolist() == num_masks
    assert found["tokens"].shape == (len(texts), max(num_masks, default=0), 3)
    for row, count in enumerate(num_masks):
        assert (found["tokens"][row, :count] != b"").all()
        assert (found["tokens"][row, count:] == b"").all()
        assert (found["probabilities"][row, :count] > 0).all()
        assert (found["probabilities"][row, count:] == 0).all()


def test_a_mask_that_trimming_cuts_off_is_not_counted(answer):
    # 16 positions hold 14 tokens between [CLS] and [SEP].
    texts = ["[MASK] " + "long " * 12 + "[MASK]", "[MASK] " + "long " * 13 + "[MASK]"]
    assert answer(texts)["num_masks"].tolist() == [2, 1]


def test_neighbours_in_a_batch_change_nothing(answer):
    together = answer(TEXTS)
    for row, text in enumerate(TEXTS):
        alone = answer([text])
        count = alone["num_masks"][0]
        assert together["tokens"][row, :count].tolist() == alone["tokens"][0].tolist()
        np.testing.assert_allclose(
            together["probabilities"][row, :count], alone["probabilities"][0], atol=1e-5
        )


def test_tokens_in_place_of_text(run, answer):
    found = run(
        "fill_mask",
        "tokens",
        token_ids=tf.constant([[2, 10, 4, 4, 13, 3, 4]]),  # the last [MASK] is in the padding
        segment_ids=tf.zeros([1, 7], tf.int32),
        padding_mask=tf.constant([[True] * 6 + [False]]),
    )
    text = answer(TEXTS[2:])
    assert found["num_masks"].tolist() == [2]
    assert found["tokens"].tolist() == text["tokens"].tolist()
    np.testing.assert_allclose(found["probabilities"], text["probabilities"], atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="token_ids.*14 tokens"):
        run(
            "fill_mask",
            "tokens",
            token_ids=tf.constant([[2, 14, 3]]),
            segment_ids=tf.zeros([1, 3], tf.int32),
            padding_mask=tf.ones([1, 3], tf.bool),
        )


def test_rows_are_json_and_end_with_their_masks(fill):
    rows = fill.rows({"text": TEXTS})
    assert json.loads(json.dumps(rows)) == rows
    assert [row["num_masks"] for row in rows] == [1, 1, 2]
    assert [len(row["tokens"]) for row in rows] == [1, 1, 2]
    assert isinstance(rows[0]["tokens"][0][0], str)


@pytest.mark.slow
def test_metadata_tell_what_was_exported(exports, tokenizer):
    metadata = json.loads((exports("fill_mask") / METADATA_FILE).read_text())
    assert (metadata["task"], metadata["top_k"]) == ("fill_mask", 3)
    without = 8 * 8 + 8 + 2 * 8 + 2  # pooler, next sentence
    assert metadata["model"]["num_parameters"] == lively_pretrainer().count_params() - without


def test_a_masked_lm_and_a_shorter_length(tokenizer):
    model = heads.masked_lm(lively_encoder())
    fill = MaskFiller(model, tokenizer, top_k=14, max_sequence_length=5)
    cut, whole = fill(["a good film [MASK]", "a good [MASK] film"])
    assert cut.tokens == []
    assert sorted(whole.tokens[0]) == sorted(VOCABULARY)
    assert sum(whole.probabilities[0]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("top_k", [0, 15])
def test_top_k_out_of_range(fill, tokenizer, top_k):
    model = lively_pretrainer()
    with pytest.raises(ValueError, match=rf"top_k={top_k}: expected.*1.*14"):
        MaskFiller(model, tokenizer, top_k=top_k)


# --- masks in a text -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mask_tokens():
    return runpy.run_path(str(GOLDEN / "make_mask_tokens.py"))


def test_masks_in_texts_are_those_of_hugging_face(mask_tokens):
    golden = json.loads((GOLDEN / "mask_tokens.json").read_text())
    vocabulary, texts = mask_tokens["VOCABULARY"], mask_tokens["TEXTS"]
    assert sorted(golden, key=int) == [str(length) for length in mask_tokens["LENGTHS"]]
    tokenizer = WordPieceTokenizer(vocabulary)
    model = heads.masked_lm(lively_encoder(vocabulary_size=len(vocabulary), num_positions=32))
    for length, expected in golden.items():
        fill = MaskFiller(model, tokenizer, max_sequence_length=int(length))
        in_graph = [tf.function(fill.encode)] if length == "8" else []  # one is enough
        for encode in (fill.encode, *in_graph):
            packed = encode(tf.constant(texts))
            rows = tf.ragged.boolean_mask(packed["token_ids"], packed["padding_mask"]).to_list()
            for text, row, ids in zip(texts, rows, expected, strict=True):
                assert row == ids, (text, length)
            assert not packed["segment_ids"].numpy().any()
    paris = golden["32"][0]
    assert [vocabulary[i] for i in paris] == (
        ["[CLS]", "paris", "is", "the", "[MASK]", "of", "france", ".", "[SEP]"]
    )


def test_without_masks_it_is_the_tokenizers_own(fill, tokenizer):
    texts = ["a good film", "", b"\xffvery\xfe", "[SEP] [mask]", "long " * 40]
    ours, own = fill.encode(tf.constant(texts)), tokenizer(texts, max_sequence_length=16)
    for name, value in own.items():
        np.testing.assert_array_equal(ours[name], value)


@pytest.mark.slow
def test_the_tokenizer_says_what_a_mask_is():
    tokenizer = WordPieceTokenizer(VOCABULARY)
    tokenizer.mask_token = "<mask>"
    fill = MaskFiller(lively_pretrainer(), tokenizer)
    assert [len(found.tokens) for found in fill(["[MASK]", "<mask>s<mask>", "<MASK>"])] == [0, 2, 0]
    plain, *_, masks = fill.example_batches(None)
    assert b"<mask>" in plain["text"][0]
    assert b"<mask>" in masks["text"]
    without = SimpleNamespace(
        vocabulary_size=14, num_special_tokens=tokenizer.num_special_tokens, pack=tokenizer.pack
    )
    with pytest.raises(ValueError, match="SimpleNamespace has no mask_token"):
        MaskFiller(lively_pretrainer(), without)


@pytest.mark.reference
def test_the_golden_mask_tokens_are_transformers_own(mask_tokens):
    pytest.importorskip("transformers", reason="needs pip install -e .[reference]")
    assert mask_tokens["golden"]() == json.loads((GOLDEN / "mask_tokens.json").read_text())
