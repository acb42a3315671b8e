"""Families that this package does not have, with layers of any names: everything works on them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from checks import bert_inputs, round_trip, same_outputs

import keras_transformers as kt
from keras_transformers.decoding import beam_search, greedy_search
from keras_transformers.families.bert.model import bert
from keras_transformers.inspection import attention, flops_table, model_blocks
from keras_transformers.inspection.parameters import parameter_table
from keras_transformers.layers import (
    FeedForward,
    FirstTokenPooler,
    MultiHeadAttention,
    PositionEmbedding,
    RelativePositionBias,
    RotaryPositions,
    RowDense,
    SinusoidalPositionEmbedding,
    TokenEmbedding,
    TransformerBlock,
)
from keras_transformers.layers.norms import norm_layer
from keras_transformers.models.anatomy import anatomy, only
from keras_transformers.models.classes.causal_lm import CausalLM
from keras_transformers.training import recompute_layers

V, L, H, INNER, HEADS, KEY_HEADS = 30, 2, 16, 24, 4, 2
RANDOM = np.random.default_rng(0)
IDS = RANDOM.integers(1, V, (3, 9)).astype("int32")
LENGTHS = np.array([5, 1, 9])
MASK = np.arange(9)[None] < LENGTHS[:, None]


def llama(places="rotary", *, vocabulary_size=V, shared=False, **options):
    """A decoder as Llama, Qwen and Gemma are made; with odd names, and other kinds of positions."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    hidden = TokenEmbedding(vocabulary_size, H, name="wte")(token_ids)
    bias = {}
    if places == "learned":
        hidden = PositionEmbedding(12, name="wpe")(hidden)
    elif places == "sinusoidal":
        hidden = SinusoidalPositionEmbedding(12, name="waves")(hidden)
    elif places == "by distance":
        distances = RelativePositionBias(8, HEADS, max_distance=16, bidirectional=False, name="far")
        bias = {"attention_bias": distances(hidden)}

    def block(name):
        own = MultiHeadAttention(
            HEADS,
            H,
            num_key_value_heads=KEY_HEADS,
            positions=RotaryPositions(100.0) if places == "rotary" else None,
            use_causal_mask=True,
            use_bias=False,
            **options,
        )
        feed_forward = FeedForward(INNER, H, activation="silu", gated=True, use_bias=False)
        return TransformerBlock(own, feed_forward, norm="rms", norm_position="pre", name=name)

    first = block("encoder_layer")
    for number in range(L):
        layer = first if shared or number == 0 else block(f"floor{'ab'[number]}")
        hidden = layer(hidden, **bias)
    hidden = norm_layer("rms", 1e-6, name="roof")(hidden)
    logits = RowDense(vocabulary_size, use_bias=False, dtype="float32", name="speak")(hidden)
    return tiny.lively(CausalLM({"token_ids": token_ids}, {"logits": logits}, name="llama"))


def albert(vocabulary_size):
    """The model of docs/tutorials/a_family_in_a_day.md: one block, called several times."""
    inputs = {
        name: keras.Input((None,), dtype="bool" if name == "padding_mask" else "int32", name=name)
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    hidden = TokenEmbedding(vocabulary_size, 6, name="words")(inputs["token_ids"])
    hidden = hidden + keras.layers.Embedding(2, 6, name="sides")(inputs["segment_ids"])
    hidden = PositionEmbedding(16, name="places")(hidden)
    hidden = keras.layers.Dense(8, name="wider")(hidden)
    layer = TransformerBlock(
        MultiHeadAttention(2, 8), FeedForward(32, 8), name="encoder_layer", norm_epsilon=1e-12
    )
    for _ in range(3):
        hidden = layer(hidden, attention_mask=inputs["padding_mask"])
    pooled = FirstTokenPooler(8, activation="tanh", name="first")(hidden)
    return tiny.lively(
        keras.Model(inputs, {"sequence_output": hidden, "pooled_output": pooled}, name="albert")
    )


@pytest.fixture(scope="module")
def model():
    return llama()


def logits_of(model, ids):
    return model({"token_ids": ids}, training=False)["logits"].numpy()


def test_its_parts_are_found(model):
    found = anatomy(model, "token_embedding", "blocks", "projection")
    assert found.token_embedding is model.get_layer("wte")
    assert [block.name for block in found.blocks] == ["encoder_layer", "floorb"]
    assert [type(layer) for layer in found.positions] == [RotaryPositions] * L
    assert (found.final_norm.name, found.projection.name) == ("roof", "speak")
    assert (found.max_sequence_length, found.pooler, found.encoder) == (None, None, None)
    assert [vectors.shape for vectors in found.hidden] == [(None, None, H)] * (L + 1)
    assert found.projected is model.get_layer("roof").output
    bare = bert(vocabulary_size=V, num_layers=1, num_heads=2, hidden_dim=8)
    assert anatomy(bare).projection is None
    assert anatomy(kt.heads.masked_lm(bare)).projection is bare.get_layer("token_embedding")
    with pytest.raises(ValueError, match="model 'bert' has no projection: .* vocabulary"):
        anatomy(bare, "projection")
    with pytest.raises(ValueError, match="'bert'.*LastToken"):
        only(bare, kt.layers.LastToken)


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("places", "num_beams", "max_length"),
    [
        *(("rotary", 1, None), ("rotary", 2, 3), ("learned", 2, None), ("sinusoidal", 1, 3)),
        *(("by distance", 1, None), ("by distance", 2, 3), ("none", 1, 3)),
    ],
)
def test_with_a_cache_it_computes_what_it_computes_without(places, num_beams, max_length):
    """Of prompts of different lengths, with whatever says where tokens stand."""
    model = llama(places, shared=places == "none")
    step, last, cache = model.start_decoding(IDS, MASK, max_length=max_length)
    assert cache[0][0].shape[1] == KEY_HEADS
    assert len(cache) == L
    cache = keras.tree.map_structure(lambda x: np.repeat(x, num_beams, 0), cache)
    rows = [list(row[:length]) for row, length in zip(IDS, LENGTHS, strict=True) for _ in "ab"]
    rows = rows if num_beams == 2 else rows[::2]
    token_ids = np.repeat(last, num_beams)
    for index in range(3):
        logits, cache = step(tf.constant(token_ids), index, cache)
        for number, row in enumerate(rows):
            whole = logits_of(model, np.array([row], "int32"))[0, -1]
            np.testing.assert_allclose(logits[number], whole, atol=1e-4)
        token_ids = np.arange(len(rows), dtype="int32") + 3 + index
        for row, token in zip(rows, token_ids, strict=True):
            row.append(token)


def test_windows_and_norms_of_heads_go_through_the_cache_too():
    model = llama(window=2, query_key_norm_epsilon=1e-6)
    found = greedy_search(*model.start_decoding(IDS), end_token_id=0, max_length=4, growing_axis=2)
    row = IDS
    for _ in range(4):
        row = np.concatenate([row, logits_of(model, row)[:, -1:].argmax(-1)], axis=1)
    np.testing.assert_array_equal(found.token_ids[:, 0], row[:, 9:])


@pytest.mark.slow
def test_graphs_of_fixed_and_growing_caches_agree(model):
    def search(max_length):
        step, last, cache = model.start_decoding(IDS, MASK, max_length=max_length)
        growing = 2 if max_length is None else None
        options = {"num_beams": 2, "end_token_id": 0, "growing_axis": growing}
        return beam_search(step, last, cache, max_length=4, **options)

    growing, fixed = tf.function(search)(None), tf.function(search)(4)
    np.testing.assert_array_equal(growing.token_ids, fixed.token_ids)
    np.testing.assert_allclose(growing.scores, fixed.scores, atol=1e-4)


def test_its_account_is_exact(model):
    own = 2 * H * H + 2 * H * KEY_HEADS * H // HEADS
    block = own + 3 * H * INNER + 2 * H
    assert model.count_params() == 2 * V * H + L * block + H
    rows = {row.name: row for row in parameter_table(model, {"V": V, "H": H, "I": INNER})}
    assert rows["wte"].formula == "V*H"
    assert rows["encoder_layer"].num_parameters == block
    assert rows["encoder_layer/feed_forward"].formula == "3H*I"
    flops = {row.name: row.flops for row in flops_table(model, {"token_ids": (2, 5)})}
    per_block = 2 * 2 * 5 * (own + 3 * H * INNER) + 4 * 2 * 5 * 5 * H
    assert flops["floorb"] == per_block
    assert flops["speak"] == 2 * 2 * 5 * V * H


def test_letters_of_an_account_follow_types_not_names():
    model = llama("learned", vocabulary_size=12)
    rows = {row.name: row.formula for row in parameter_table(model, {"V": 12, "P": 12, "H": H})}
    assert (rows["wte"], rows["wpe"]) == ("V*H", "P*H")


def test_its_picture_has_its_blocks(model, tmp_path):
    layers = [block for block in model_blocks(model) if block.kind == "layer"]
    assert [layer.look for layer in layers] == ["embedding", *["plain"] * L, "norm", "plain"]
    parts = layers[1].parts
    assert [part.name for part in parts] == ["self_attention", "feed_forward"]
    assert [part.look for part in parts] == ["attention", "feed_forward"]
    assert {part.norm for part in parts} == {"pre"}
    kt.inspection.plot(model, tmp_path / "llama.svg")


def test_recomputation_gives_the_same_gradients():
    found = []
    for recompute in (False, True):
        model = llama()
        recompute_layers(model, recompute)
        assert all(block.recomputes is recompute for block in anatomy(model).blocks)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model({"token_ids": IDS}, training=True)["logits"] ** 2)
        found.append(tape.gradient(loss, model.trainable_variables))
    for plain, again in zip(*found, strict=True):
        np.testing.assert_allclose(*map(tf.convert_to_tensor, (plain, again)), atol=1e-4)


@pytest.fixture(scope="module")
def generator():
    like = tiny.pipeline("generation")
    model = llama(vocabulary_size=like.tokenizer.vocabulary_size)
    return kt.pipelines.TextGenerator(model, like.tokenizer, max_sequence_length=20, max_length=5)


@pytest.mark.slow
def test_a_generator_continues_texts_with_it(generator, tmp_path):
    answer = generator("a small dog")
    generator.save(tmp_path / "saved")
    again = kt.load(tmp_path / "saved")
    assert (again("a small dog"), again.max_sequence_length) == (answer, 20)
    maps = attention(generator, "a small dog")["decoder"]
    assert maps.probabilities.shape[:2] == (L, HEADS)
    assert np.triu(maps.probabilities, k=1).max() == 0
    np.testing.assert_allclose(maps.probabilities.sum(-1), 1, atol=1e-5)
    with pytest.raises(ValueError, match="max_sequence_length=None for model 'llama'"):
        kt.pipelines.TextGenerator(generator.model, generator.tokenizer)


@pytest.mark.slow
def test_the_export_of_a_generator_answers_the_same(generator, tmp_path):
    kt.export(generator, tmp_path / "llama" / "1")  # checks the answers against the pipeline's


def test_it_classifies_with_a_head(model):
    head = kt.heads.causal_classifier(model, 3)
    ids = np.pad(IDS[:1, :5], ((0, 0), (0, 3)))
    mask = np.arange(8)[None] < 5
    whole = head({"token_ids": ids, "padding_mask": mask})["logits"]
    alone = head({"token_ids": ids[:, :5], "padding_mask": mask[:, :5]})["logits"]
    np.testing.assert_allclose(whole, alone, atol=1e-4)


def test_a_block_that_is_called_three_times_counts_three_times(tmp_path):
    encoder = albert(len(tiny.VOCABULARY))
    found = anatomy(encoder, "token_embedding", "blocks")
    assert [block.name for block in found.blocks] == ["encoder_layer"] * 3
    assert (found.max_sequence_length, found.pooler.name) == (16, "first")
    features = kt.heads.features.layer_features(encoder, "concat_last_4")
    inputs = bert_inputs(vocabulary_size=len(tiny.VOCABULARY))
    outputs = np.array(features(inputs)["features"])
    assert outputs.shape[2] == 4
    np.testing.assert_allclose(outputs[:, :, -1], encoder(inputs)["sequence_output"], atol=1e-6)
    same_outputs(round_trip(encoder, tmp_path)(inputs), encoder(inputs), 1e-6)


SLOW = [
    pytest.param(task, marks=pytest.mark.slow)
    for task in ("fill_mask", "question_answering", "regression", "embedding", "tagging")
]


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")  # the export of one is a graph
@pytest.mark.parametrize("task", ["classification", *SLOW])
def test_every_task_takes_an_encoder_with_odd_names(task, tmp_path):
    like = tiny.pipeline(task)
    encoder = albert(len(tiny.VOCABULARY))
    make = {
        "classification": lambda: kt.heads.classifier(encoder, len(like.labels)),
        "regression": lambda: kt.heads.regressor(encoder),
        "embedding": lambda: kt.heads.embedder(encoder),
        "fill_mask": lambda: kt.heads.masked_lm(encoder),
        "tagging": lambda: kt.heads.tagger(encoder, len(like.labels)),
        "question_answering": lambda: kt.heads.span_extractor(encoder),
    }[task]
    pipeline = type(like).restore(tiny.lively(make()), like.tokenizers, **like.config())
    texts = ["a good [MASK]" if task == "fill_mask" else "a good film"] * len(like.text_names)
    answer = pipeline(*texts)
    pipeline.save(tmp_path / "saved")
    again = kt.load(tmp_path / "saved")(*texts)
    assert repr(again) == repr(answer)
    found = attention(pipeline, *texts)["encoder"]
    assert found.probabilities.shape[:2] == (3, 2)
    kt.inspection.plot(pipeline.model, tmp_path / "picture.svg")
    if task == "classification":
        kt.export(pipeline, tmp_path / "served" / "1")
