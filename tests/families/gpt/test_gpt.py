import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import round_trip, same_outputs

from keras_transformers.decoding import beam_search, greedy_search
from keras_transformers.families.gpt.model import gpt, num_parameters
from keras_transformers.heads import causal_classifier
from keras_transformers.models.anatomy import anatomy
from keras_transformers.training.losses import TokenCrossentropy

SMALL = {
    "vocabulary_size": 30,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "max_sequence_length": 24,
    "initializer_range": 0.3,
}
RANDOM = np.random.default_rng(0)
IDS = RANDOM.integers(1, 30, (3, 9)).astype("int32")
# Two documents in the first row, three in the second, one in the third.
DOCUMENTS = np.array([[0] * 4 + [1] * 5, [2, 2, 3, 3, 3, 4, 4, 4, 4], [5] * 9], "int32")
LENGTHS = [5, 1, 9]
MASK = np.arange(9)[None] < np.array(LENGTHS)[:, None]


@pytest.fixture(scope="module", params=["pre", "post"])
def model(request):
    keras.utils.set_random_seed(1)
    return gpt(**SMALL, norm_position=request.param)


def logits_of(model, token_ids=IDS, **inputs):
    return model({"token_ids": token_ids, **inputs}, training=False)["logits"].numpy()


def test_a_later_token_changes_no_earlier_logit(model):
    changed = IDS.copy()
    changed[:, 5] = changed[:, 5] % 29 + 1
    before, after = logits_of(model), logits_of(model, changed)
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert (np.abs(before[:, 5:] - after[:, 5:]).max(-1) > 1e-6).all()


def test_padding_behind_changes_nothing(model):
    longer = np.pad(IDS, ((0, 0), (0, 4)))
    np.testing.assert_allclose(logits_of(model), logits_of(model, longer)[:, :9], atol=1e-5)


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("num_beams", "max_length"),
    [
        pytest.param(1, None, id="1-growing"),
        pytest.param(1, 8, id="1-fixed", marks=pytest.mark.slow),
        pytest.param(2, None, id="2-growing", marks=pytest.mark.slow),
        pytest.param(2, 8, id="2-fixed"),
    ],
)
def test_prompts_then_steps_equal_the_whole_sequence(model, num_beams, max_length):
    """Prompts of different lengths share a batch, each followed by its own tokens."""
    step, last, cache = model.start_decoding(IDS, MASK, max_length=max_length)
    np.testing.assert_array_equal(last, [IDS[0, 4], IDS[1, 0], IDS[2, 8]])
    rows = 3 * num_beams
    following = RANDOM.integers(1, 30, (rows, 6)).astype("int32")
    fed = np.concatenate([np.repeat(last, num_beams)[:, None], following], axis=1).astype("int32")
    cache = tf.nest.map_structure(lambda leaf: tf.repeat(leaf, num_beams, axis=0), cache)
    found = []
    for index in range(7):
        logits, cache = step(tf.constant(fed[:, index]), tf.constant(index), cache)
        found.append(logits)
    for row in range(rows):
        prompt = IDS[row // num_beams, : LENGTHS[row // num_beams]]
        whole = logits_of(model, np.concatenate([prompt, following[row]])[None])[0]
        np.testing.assert_allclose(
            np.stack(found, 1)[row], whole[len(prompt) - 1 :], atol=3e-5, err_msg=str(row)
        )


def test_greedy_search_follows_the_models_own_logits(model):
    found = greedy_search(*model.start_decoding(IDS), end_token_id=0, max_length=8, growing_axis=2)
    texts = np.concatenate([IDS, found.token_ids[:, 0]], axis=1).astype("int32")
    best = logits_of(model, texts).argmax(-1)
    for row, length in enumerate(found.lengths[:, 0].numpy()):
        np.testing.assert_array_equal(found.token_ids[row, 0, :length], best[row, 8 : 8 + length])


SEARCHES = {
    "greedy": greedy_search,
    "beam": lambda *args, **options: beam_search(*args, num_beams=2, **options),
}


@pytest.mark.one_case
@pytest.mark.parametrize("search", SEARCHES)
def test_no_search_goes_beyond_the_positions(model, search):
    """24 positions, and the last token of a text needs none: 22 + 3 tokens fit, 22 + 4 do not."""
    options = {"end_token_id": None, "growing_axis": 2}
    prompts = np.tile(IDS, (1, 3))[:, :22]
    started = model.start_decoding(prompts, np.arange(22)[None] < np.array([[5], [1], [22]]))
    found = SEARCHES[search](*started, max_length=3, **options)
    assert found.token_ids.shape[-1] == 3
    text = "up to 4 tokens for sentence 2, but the model has positions for 3 more: lower max_len"
    with pytest.raises(ValueError, match=text):
        SEARCHES[search](*started, max_length=4, **options)
    SEARCHES[search](*started, max_length=5, length_limits=[5, 5, 3], **options)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def in_a_graph(token_ids):
        return SEARCHES[search](*model.start_decoding(token_ids), max_length=4, **options)

    assert in_a_graph(prompts[:, :21]).token_ids.shape[-1] == 4
    with pytest.raises(tf.errors.InvalidArgumentError, match="the search may go beyond"):
        in_a_graph(prompts)


def test_a_fixed_cache_is_not_outgrown(model):
    with pytest.raises(ValueError, match="up to 9 tokens .* has positions for 8 more"):
        greedy_search(*model.start_decoding(IDS, max_length=8), end_token_id=0, max_length=9)


def test_prompts_that_a_model_cannot_read_are_refused(model):
    for bad in (-1, 30):
        ids = IDS.copy()
        ids[1, 3] = bad
        with pytest.raises(ValueError, match=f"token_ids has {bad}: .* has ids 0 to 29"):
            model.start_decoding(ids)
    with pytest.raises(ValueError, match="27 tokens,.*24 positions"):
        model.start_decoding(np.tile(IDS, (1, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_search_in_a_graph_growing_and_fixed_under_xla_agree(jit_compile):
    keras.utils.set_random_seed(1)
    model = gpt(**SMALL)

    def searcher(max_length, jit_compile=False):
        shape = [None, None] if max_length is None else IDS.shape

        @tf.function(
            jit_compile=jit_compile,
            autograph=False,
            input_signature=[tf.TensorSpec(shape, tf.int32)],
        )
        def run(token_ids):
            return beam_search(
                *model.start_decoding(token_ids, max_length=max_length),
                end_token_id=0,
                max_length=6,
                num_beams=2,
                growing_axis=2 if max_length is None else None,
            )

        return run

    search = searcher(None)
    growing, fixed = search(IDS), searcher(6, jit_compile)(IDS)
    np.testing.assert_array_equal(growing.token_ids, fixed.token_ids)
    np.testing.assert_allclose(growing.scores, fixed.scores, atol=1e-5)
    assert search(IDS[:0]).token_ids.shape == (0, 2, 6)


def test_packed_documents_are_as_if_each_stood_alone():
    keras.utils.set_random_seed(1)
    model = gpt(**SMALL, separate_documents=True)
    whole = gpt(**SMALL)
    whole.set_weights(model.get_weights())
    packed = logits_of(model, document_ids=DOCUMENTS)
    for row, documents in enumerate(DOCUMENTS):
        for document in np.unique(documents):
            here = documents == document
            alone = logits_of(whole, IDS[row][here][None])[0]
            np.testing.assert_allclose(packed[row][here], alone, atol=1e-5)
    assert np.abs(packed - logits_of(whole)).max() > 1e-2  # documents do matter
    step, last, cache = model.start_decoding(IDS)  # a prompt is one document
    logits, _ = step(last, tf.constant(0), cache)
    np.testing.assert_allclose(logits, logits_of(whole)[:, -1], atol=1e-5)


def test_saving_keeps_the_class_the_count_and_the_numbers(model, tmp_path):
    loaded = round_trip(model, tmp_path)
    same_outputs(logits_of(model), logits_of(loaded))
    assert type(loaded) is type(model)
    assert loaded.count_params() == model.count_params()
    loaded.start_decoding(IDS)


def test_weights_are_tied_and_counted(model):
    assert len([w for w in model.weights if tuple(w.shape) == (30, 16)]) == 1
    expected = num_parameters(
        vocabulary_size=30,
        num_layers=2,
        hidden_dim=16,
        max_sequence_length=24,
        norm_position=anatomy(model).blocks[0].norm_position,
    )
    assert model.count_params() == expected


def test_matrices_that_lead_back_start_smaller_in_gpt2():
    def spread(norm_position):
        keras.utils.set_random_seed(0)
        config = SMALL | {"hidden_dim": 64}
        layer = anatomy(gpt(**config, norm_position=norm_position)).blocks[0]
        matrices = (layer.feed_forward.output_projection, layer.feed_forward.intermediate)
        return [float(np.std(dense.kernel)) for dense in matrices]

    np.testing.assert_allclose(spread("pre"), [0.3 / 2, 0.3], rtol=0.05)
    np.testing.assert_allclose(spread("post"), [0.3, 0.3], rtol=0.05)


def test_too_long_and_unknown_are_refused(model):
    with pytest.raises(ValueError, match="25.*24 positions"):
        logits_of(model, np.ones((1, 25), "int32"))
    with pytest.raises(ValueError, match="norm_position='none' is unknown"):
        gpt(**SMALL, norm_position="none")
    with pytest.raises(ValueError, match="hidden_dim=16.*num_heads=3"):
        gpt(**(SMALL | {"num_heads": 3}))
    with pytest.raises(ValueError, match="num_classes=1"):
        causal_classifier(model, 1)


def test_a_classifier_reads_the_last_real_token(model):
    head = causal_classifier(model, 3)
    assert head.count_params() == model.count_params() + 16 * 3 + 3
    outputs = head({"token_ids": IDS, "padding_mask": MASK}, training=False)
    np.testing.assert_array_equal(outputs["token_logits"], logits_of(model))
    for row, length in enumerate(LENGTHS):
        alone = {
            "token_ids": IDS[row : row + 1, :length],
            "padding_mask": MASK[row : row + 1, :length],
        }
        expected = head(alone, training=False)["logits"][0]
        np.testing.assert_allclose(outputs["logits"][row], expected, atol=1e-5)


@pytest.mark.slow
def test_a_class_is_learned_beside_the_language():
    """Separates rows that repeat a token from rows that do not; both losses fall."""
    keras.utils.set_random_seed(0)
    model = causal_classifier(gpt(**(SMALL | {"num_layers": 1}), dropout=0.0), 2, dropout=0.0)
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 256)
    ids = np.where(random.random((256, 8)) < 0.5, 3, 4).astype("int32")
    ids[:, 1:6] = np.where(labels, 7, 9)[:, None]
    targets = {"logits": labels, "token_logits": np.roll(ids, -1, axis=1)}
    weights = {"logits": np.ones(256), "token_logits": np.ones((256, 8)) * (np.arange(8) < 7)}
    model.compile(
        keras.optimizers.Adam(1e-2),
        loss={
            "logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "token_logits": TokenCrossentropy(),
        },
        loss_weights={"logits": 1.0, "token_logits": 0.5},
    )
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids, bool)}
    history = model.fit(inputs, targets, sample_weight=weights, epochs=4, verbose=0).history
    assert history["logits_loss"][-1] < 0.1 < history["logits_loss"][0]
    assert history["token_logits_loss"][-1] < 0.7 * history["token_logits_loss"][0]
    found = model.predict(inputs, verbose=0)["logits"].argmax(-1)
    assert np.mean(found == labels) == 1
