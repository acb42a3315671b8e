import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import round_trip, same_outputs

from keras_transformers.decoding import beam_search, greedy_search
from keras_transformers.families.transformer.model import num_parameters, transformer
from keras_transformers.layers import RelativePositionBias

SMALL = {
    "vocabulary_size": 30,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "max_sequence_length": 40,
}
RANDOM = np.random.default_rng(0)
SOURCES = np.array([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0], [3, 2, 0, 0, 0]], "int32")
TARGETS = RANDOM.integers(3, 30, (3, 6)).astype("int32")
FORMS = [
    {"weight_tying": "all", "norm_position": "post", "positions": "sinusoidal"},
    {"weight_tying": "decoder", "norm_position": "pre", "positions": "learned"},
    {"weight_tying": "none", "norm_position": "pre", "use_output_bias": True},
]


def logits_of(model, sources=SOURCES, targets=TARGETS):
    inputs = {"source_token_ids": sources, "target_token_ids": targets}
    return model(inputs, training=False)["logits"].numpy()


@pytest.fixture(
    scope="module",
    params=[0, 1, pytest.param(2, marks=pytest.mark.slow)],
    ids=["tied", "decoder-tied", "untied"],
)
def model(request):
    keras.utils.set_random_seed(1)
    return transformer(**SMALL, **FORMS[request.param])


def test_a_later_target_changes_no_earlier_logit(model):
    changed = TARGETS.copy()
    changed[:, 3] = (changed[:, 3] - 3 + 1) % 27 + 3
    before, after = logits_of(model), logits_of(model, targets=changed)
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (np.abs(before[:, 3:] - after[:, 3:]).max(-1) > 1e-6).all()


def test_source_padding_changes_nothing(model):
    longer = np.pad(SOURCES, ((0, 0), (0, 4)))
    np.testing.assert_allclose(logits_of(model), logits_of(model, longer), atol=1e-5)


def test_every_source_token_counts(model):
    sources = np.repeat(SOURCES[:1], 6, axis=0)  # one as it is, then each with one token changed
    sources[np.arange(1, 6), np.arange(5)] = 20
    logits = logits_of(model, sources, np.repeat(TARGETS[:1], 6, axis=0))
    assert (np.abs(logits[1:] - logits[0]).max((1, 2)) > 1e-5).all()


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("num_beams", "max_length"),
    [
        pytest.param(1, None, id="1-growing"),
        pytest.param(1, 8, id="1-fixed", marks=pytest.mark.slow),
        pytest.param(3, None, id="3-growing", marks=pytest.mark.slow),
        pytest.param(3, 8, id="3-fixed"),
    ],
)
def test_steps_with_a_cache_equal_the_whole_sequence(model, num_beams, max_length):
    targets = RANDOM.integers(3, 30, (3 * num_beams, 6)).astype("int32")
    whole = logits_of(model, np.repeat(SOURCES, num_beams, 0), targets)
    step, cache = model.start_decoding(SOURCES, max_length=max_length)
    cache = tf.nest.map_structure(lambda leaf: tf.repeat(leaf, num_beams, axis=0), cache)
    for index in range(6):
        logits, cache = step(tf.constant(targets[:, index]), tf.constant(index), cache)
        np.testing.assert_allclose(logits, whole[:, index], atol=2e-5, err_msg=str(index))


@pytest.mark.one_case
@pytest.mark.parametrize("max_length", [None, 8])
@pytest.mark.parametrize("positions", ["relative", "rotary"])
def test_positions_in_the_attention_need_no_others_and_have_no_end(positions, max_length):
    keras.utils.set_random_seed(1)
    sizes = SMALL | {"num_encoder_layers": 1, "num_decoder_layers": 1, "max_sequence_length": 4}
    model = transformer(**sizes, positions=positions, norm_position="pre")
    for layer in model.layers:
        if isinstance(layer, RelativePositionBias):  # not small, so that the order counts
            layer.embeddings.assign(RANDOM.normal(size=layer.embeddings.shape))
    assert not any("position_embedding" in layer.name for layer in model.layers)
    whole = logits_of(model)
    turned = SOURCES.copy()
    turned[:, :2] = SOURCES[:, 1::-1]
    assert (np.abs(whole - logits_of(model, turned)).max((1, 2)) > 1e-5).all()
    step, cache = model.start_decoding(SOURCES, max_length=max_length)
    assert step.max_steps == max_length
    for index in range(6):
        logits, cache = step(tf.constant(TARGETS[:, index]), tf.constant(index), cache)
        np.testing.assert_allclose(logits, whole[:, index], atol=2e-5, err_msg=str(index))


@pytest.mark.one_case
def test_greedy_search_follows_the_models_own_logits(model):
    step, cache = model.start_decoding(SOURCES)
    found = greedy_search(step, [1, 1, 1], cache, end_token_id=2, max_length=8, growing_axis=2)
    fed = np.concatenate([[[1]] * 3, found.token_ids[:, 0, :-1]], axis=1).astype("int32")
    best = logits_of(model, targets=fed).argmax(-1)
    for row, length in enumerate(found.lengths[:, 0].numpy()):
        np.testing.assert_array_equal(found.token_ids[row, 0, :length], best[row, :length])


@pytest.mark.parametrize("fixed", [None, 8])
def test_no_search_goes_beyond_the_positions(model, fixed):
    positions = model.get_layer("target_position_embedding").max_sequence_length
    most = fixed or positions
    step, cache = model.start_decoding(SOURCES, max_length=fixed)
    axis = 2 if fixed is None else None
    with pytest.raises(ValueError, match=f"up to {most + 1} tokens .* positions for {most} more"):
        greedy_search(step, [1] * 3, cache, end_token_id=2, max_length=most + 1, growing_axis=axis)


def test_ids_outside_the_vocabulary_are_refused(model):
    for bad in (-1, 10_000):
        with pytest.raises(ValueError, match=f"source_token_ids.*{bad}:.*vocabulary"):
            model.start_decoding(np.full((1, 2), bad, "int32"))


def searcher(model, max_length, jit_compile=False):
    shape = [None, None] if max_length is None else SOURCES.shape

    @tf.function(
        jit_compile=jit_compile,
        autograph=False,
        input_signature=[tf.TensorSpec(shape, tf.int32)],
    )
    def run(sources):
        step, cache = model.start_decoding(sources, max_length=max_length)
        return beam_search(
            step,
            tf.fill([tf.shape(sources)[0]], 1) if max_length is None else [1, 1, 1],
            cache,
            end_token_id=2,
            max_length=8,
            num_beams=3,
            growing_axis=2 if max_length is None else None,
        )

    return run


@pytest.mark.parametrize(
    ("model", "jit_compile"),
    [
        pytest.param(0, False, id="tied"),
        *(
            pytest.param(form, True, id=f"{name}-xla", marks=pytest.mark.slow)
            for form, name in enumerate(["tied", "decoder-tied", "untied"])
        ),
    ],
    indirect=["model"],
)
def test_beam_search_in_a_graph_growing_fixed_and_xla_agree(model, jit_compile):
    search = searcher(model, None)
    growing = search(SOURCES)
    for compiled in (False, True) if jit_compile else (False,):
        other = searcher(model, 8, compiled)(SOURCES)
        np.testing.assert_array_equal(growing.token_ids, other.token_ids)
        np.testing.assert_allclose(growing.scores, other.scores, atol=1e-5)
    np.testing.assert_array_equal(growing.token_ids, search(SOURCES[::-1]).token_ids[::-1])
    assert search(SOURCES[:0]).token_ids.shape == (0, 3, 8)


def test_cross_attention_scores_are_those_of_the_call(model):
    scores = model.cross_attention_scores(SOURCES, TARGETS)
    assert scores.shape == (3, 2, 2, 6, 5)
    np.testing.assert_allclose(np.sum(scores, -1), 1, atol=1e-5)
    assert np.max(scores[1, ..., 3:]) == 0  # no attention to padding


@pytest.mark.one_case
def test_saving_keeps_the_class_the_count_and_the_numbers(model, tmp_path):
    loaded = round_trip(model, tmp_path)
    same_outputs(logits_of(model), logits_of(loaded))
    assert type(loaded) is type(model)
    assert loaded.count_params() == model.count_params()
    loaded.start_decoding(SOURCES)


def test_tied_weights_are_one_variable():
    tied = transformer(**SMALL)
    matrices = [w for w in tied.weights if tuple(w.shape) == (30, 16)]
    assert len(matrices) == 1
    for form in ({"weight_tying": "none"}, {"weight_tying": "decoder"}, {"use_output_bias": True}):
        assert transformer(**SMALL, **form).count_params() == num_parameters(**SMALL, **form)


def test_two_vocabularies():
    model = transformer(**SMALL, target_vocabulary_size=11, weight_tying="decoder")
    assert logits_of(model, targets=TARGETS % 11).shape == (3, 6, 11)
    with pytest.raises(ValueError, match="30.*11 tokens; train"):
        transformer(**SMALL, target_vocabulary_size=11)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight_tying": "three-way"}, "weight_tying='three-way' is unknown"),
        ({"positions": "alibi"}, "positions='alibi' is unknown"),
        ({"norm_position": "none"}, "norm_position='none' is unknown"),
        ({"num_heads": 3}, "hidden_dim=16 must be a multiple of num_heads=3"),
    ],
)
def test_unknown_choices_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        transformer(**(SMALL | change))


def test_a_source_longer_than_the_positions_is_refused(model):
    with pytest.raises(ValueError, match="41.*40 positions"):
        logits_of(model, np.ones((1, 41), "int32"), TARGETS[:1])


@pytest.mark.slow
@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_a_toy_task_is_learned(task):
    """Learns to copy and reverse ten symbols; greedy search gets 99 % of the tokens right."""
    keras.utils.set_random_seed(0)
    model = transformer(
        vocabulary_size=13,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        hidden_dim=64,
        intermediate_dim=128,
        norm_position="pre",
        dropout=0.0,
        attention_dropout=0.0,
        feed_forward_dropout=0.0,
    )
    random = np.random.default_rng(0)
    sources = random.integers(3, 13, (12_800, 10)).astype("int32")
    answers = sources if task == "copy" else sources[:, ::-1]
    shifted = np.concatenate([np.full((len(answers), 1), 1), answers[:, :-1]], 1).astype("int32")
    model.compile(
        keras.optimizers.Adam(2e-3),
        loss={"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
    )
    inputs = {"source_token_ids": sources, "target_token_ids": shifted}
    model.fit(inputs, {"logits": answers}, batch_size=64, epochs=4, verbose=0)
    tests = random.integers(3, 13, (200, 10)).astype("int32")
    step, cache = model.start_decoding(tests)
    found = greedy_search(
        step, [1] * 200, cache, end_token_id=None, max_length=10, growing_axis=2
    ).token_ids[:, 0]
    expected = tests if task == "copy" else tests[:, ::-1]
    assert np.mean(found == expected) >= 0.99
