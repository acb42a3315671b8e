import json

import numpy as np
import pytest
import tensorflow as tf
from keras_transformers.export import Predictor, generator

from keras_transformers.decoding import greedy_search
from keras_transformers.models.bert import bert
from keras_transformers.models.gpt import gpt
from keras_transformers.pipelines.generation import TextGenerator
from keras_transformers.tokenizers import BytePairTokenizer

TEXTS = ["the ship is near the shore", "", "the", "the ships é"]
PLAIN = {"max_length": 6, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0}
POSITIONS = 24


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe") / "vocabulary"
    texts = ["the ship is near the shore, and the ships are not\n"] * 3
    return BytePairTokenizer.train(texts, folder, vocabulary_size=270)


@pytest.fixture(scope="module")
def model():
    model = gpt(
        vocabulary_size=270,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        max_sequence_length=POSITIONS,
    )
    random = np.random.default_rng(3)
    for weight in model.trainable_variables:
        if len(weight.shape) == 2:  # lively, so that no two continuations are nearly equal
            weight.assign(random.normal(0, 0.4, weight.shape))
    return model


@pytest.fixture(scope="module")
def texts(model, bpe):
    return TextGenerator(model, bpe)


@pytest.fixture(scope="module")
def generate(texts):
    """`TextGenerator.generate` in a graph, with the plain options where none are given."""
    graph = tf.function(texts.generate)

    def run(prompts, **options):
        columns = {
            name: np.broadcast_to(value, [len(prompts)])
            for name, value in (PLAIN | options).items()
        }
        types = {"temperature": tf.float32, "top_p": tf.float32, "seed": tf.int64}
        return graph(
            tf.constant(prompts, tf.string),
            **{k: tf.constant(v, types.get(k, tf.int32)) for k, v in columns.items()},
        )

    return run


@pytest.fixture(scope="module")
def exported(model, bpe, tmp_path_factory):
    """Checked by reloading in a fresh process and through the V1 session loader."""
    return generator(model, bpe, tmp_path_factory.mktemp("base"), max_length=5, examples=TEXTS[:1])


def log_probabilities(model, bpe, text):
    """Of each token of a text behind the start token, by the model's own call."""
    ids = [bpe.start_token_id, *bpe.tokenize([text]).to_list()[0]]
    logits = model({"token_ids": np.array([ids], "int32")}, training=False)["logits"][0]
    log_probs = tf.nn.log_softmax(logits).numpy()
    return [log_probs[i, token] for i, token in enumerate(ids[1:])]


def test_the_likeliest_token_each_time_is_greedy_search(model, bpe, generate):
    found = generate(TEXTS, top_k=1, seed=[1, 2, 3, 4])
    for row, text in enumerate(TEXTS):
        ids = [[bpe.start_token_id, *bpe.tokenize([text]).to_list()[0]]]
        expected = greedy_search(
            *model.start_decoding(tf.constant(ids)),
            end_token_id=bpe.end_token_id,
            max_length=6,
            pad_token_id=bpe.pad_token_id,
            growing_axis=2,
        )
        assert found["num_new_tokens"][row] == expected.lengths[0, 0]
        np.testing.assert_allclose(found["log_probability"][row], expected.scores[0, 0], rtol=1e-4)
        whole = bpe.detokenize(expected.token_ids[0]).numpy()[0].decode("utf-8", "replace")
        assert found["text"][row].numpy().decode() == whole


def test_the_company_in_a_batch_changes_nothing(generate):
    options = {
        "max_length": [6, 3, 5, 0],
        "temperature": [0.7, 1.0, 2.0, 1.0],
        "top_k": [0, 7, 0, 1],
        "top_p": [0.9, 1.0, 0.5, 1.0],
        "seed": [5, 6, 7, 8],
    }
    together = generate(TEXTS, **options)
    for row in range(4):
        alone = generate(TEXTS[row : row + 1], **{k: v[row : row + 1] for k, v in options.items()})
        for name in ("text", "num_new_tokens", "finished"):
            assert alone[name][0] == together[name][row], name
        np.testing.assert_allclose(
            alone["log_probability"][0], together["log_probability"][row], rtol=1e-4, atol=1e-5
        )
    assert (together["num_new_tokens"].numpy() <= options["max_length"]).all()
    assert together["text"][3] == b""


@pytest.mark.parametrize("options", [{"temperature": 2e-38}, {"temperature": 1e38, "top_k": 1}])
def test_extreme_temperatures_keep_the_likeliest_token(generate, options):
    expected = generate(TEXTS, top_k=1)["text"].numpy().tolist()
    assert generate(TEXTS, **options)["text"].numpy().tolist() == expected


def test_an_extremely_low_temperature_draws_among_equals(bpe):
    """Each of 270 log-probabilities, -5.6, divided by so little is beyond all floats."""
    flat = gpt(vocabulary_size=270, num_layers=1, num_heads=1, hidden_dim=4, max_sequence_length=4)
    flat.set_weights([np.zeros_like(weight) for weight in flat.get_weights()])
    columns = {"max_length": 1, "temperature": 1.2e-38, "top_k": 0, "top_p": 1.0}
    rows = {name: np.full(50, value) for name, value in columns.items()}
    found = TextGenerator(flat, bpe).generate(tf.constant(["the"] * 50), **rows, seed=range(50))
    np.testing.assert_allclose(found["log_probability"], -np.log(270), rtol=1e-4)
    assert len(set(found["text"].numpy())) > 20


def test_seeds_decide(generate):
    same = generate(["the"] * 3, seed=[1, 1, 2])["text"].numpy()
    assert same[0] == same[1] != same[2]


def test_tokens_come_as_often_as_the_model_says(model, bpe, generate):
    """The first token of many texts, against the filtered distribution."""
    ids = np.array([[bpe.start_token_id, *bpe.tokenize(["the"]).to_list()[0]]], "int32")
    scores = model({"token_ids": ids}, training=False)["logits"].numpy()[0, -1] / 1.5
    order = np.argsort(-scores)
    probabilities = np.exp(scores - scores.max())
    probabilities[order[20:]] = 0  # top_k
    probabilities /= probabilities.sum()
    mass = np.cumsum(probabilities[order])
    kept = order[: np.argmax(mass >= 0.8) + 1]  # top_p
    expected = probabilities[kept] / probabilities[kept].sum()
    number = 3000
    found = generate(
        ["the"] * number, max_length=1, temperature=1.5, top_k=20, top_p=0.8, seed=range(number)
    )
    log_probs = tf.nn.log_softmax(scores * 1.5).numpy()  # tells the tokens apart
    drawn = np.abs(found["log_probability"].numpy()[:, None] - log_probs[kept]).argmin(1)
    np.testing.assert_allclose(
        found["log_probability"], log_probs[kept][drawn], atol=1e-4
    )  # nothing else was drawn
    shares = np.bincount(drawn, minlength=len(kept)) / number
    assert np.abs(shares - expected).max() < 4 * np.sqrt(0.25 / number)


def test_a_score_is_the_sum_of_its_tokens(model, bpe, texts):
    found = texts.score(tf.constant(TEXTS))
    for row, text in enumerate(TEXTS):
        expected = log_probabilities(model, bpe, text)
        count = int(found["num_tokens"][row])
        assert count == len(expected)
        np.testing.assert_allclose(
            found["token_log_probabilities"][row, :count], expected, atol=1e-5
        )
        np.testing.assert_allclose(found["log_probability"][row], sum(expected), atol=1e-4)
        assert not np.any(found["token_log_probabilities"][row, count:])
        spelled = b"".join(found["tokens"].numpy()[row]).decode().replace("Ġ", " ")
        assert spelled == text.replace("é", "Ã©")
    assert texts.score(tf.constant([""]))["log_probability"].numpy().tolist() == [0.0]


def test_a_models_documents_are_all_one(bpe):
    model = gpt(
        vocabulary_size=270,
        num_layers=1,
        num_heads=1,
        hidden_dim=8,
        max_sequence_length=POSITIONS,
        separate_documents=True,
    )
    assert TextGenerator(model, bpe).score(tf.constant(["the"]))["log_probability"].shape == (1,)


def test_the_text_ends_where_the_positions_do(bpe, generate):
    prompt = "z" * (POSITIONS - 3)  # and the start token
    found = generate([prompt], max_length=50, top_k=1)
    assert found["num_new_tokens"][0] <= 3
    assert generate(["z" * (POSITIONS - 1)], max_length=50)["num_new_tokens"][0] == 1


@pytest.mark.parametrize("lengths", [[50, 20], [0, 20]])
def test_a_row_without_positions_left_stops_no_other(bpe, generate, lengths):
    """It is complete, and fed on until the other one is."""
    prompts = ["z" * (POSITIONS - 3), "the"]
    together = generate(prompts, max_length=lengths, top_k=1)
    for row, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        alone = generate([prompt], max_length=length, top_k=1)
        assert alone["text"][0] == together["text"][row]
        assert alone["num_new_tokens"][0] == together["num_new_tokens"][row]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0; for the likeliest"),
        ({"temperature": -1.0}, "temperature must be above 0"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"temperature": float("inf")}, "temperature must be above 0"),
        ({"top_k": 271}, "top_k must be from 1 to 270"),
        ({"top_k": -1}, "top_k must be from 1 to 270"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1"),
        ({"max_length": -1}, "max_length must be 0 or more"),
    ],
)
def test_options_out_of_range_are_refused(generate, model, bpe, tmp_path, options, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        generate(["the", "the"], **options)
    with pytest.raises(ValueError, match=f"out of its range.*{message}"):
        generator(model, bpe, tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_one_option_for_several_prompts_is_refused(texts):
    rows = {"max_length": [4, 4], "temperature": [1.0, 1.0], "top_k": [0, 0], "top_p": [1.0, 1.0]}
    with pytest.raises(tf.errors.InvalidArgumentError, match="seed must have a value for each"):
        texts.generate(tf.constant(["the", "the"]), **rows, seed=[1])


def test_texts_beyond_the_positions_are_refused(generate, texts):
    with pytest.raises(tf.errors.InvalidArgumentError, match="a prompt is longer than the 24"):
        generate(["the", "z" * POSITIONS])
    with pytest.raises(tf.errors.InvalidArgumentError, match="a text is longer than the 24"):
        texts.score(tf.constant(["z" * (POSITIONS + 1)]))
    assert texts.score(tf.constant(["z" * POSITIONS]))["num_tokens"].numpy().tolist() == [24]


def test_the_export_does_what_the_model_does(exported, generate, texts):
    loaded = tf.saved_model.load(str(exported)).signatures
    options = {"max_length": 6, "temperature": 0.8, "top_k": 9, "top_p": 0.9, "seed": 11}
    expected = generate(TEXTS, **options)
    types = {"temperature": tf.float32, "top_p": tf.float32, "seed": tf.int64}
    columns = {k: tf.fill([4], tf.cast(v, types.get(k, tf.int32))) for k, v in options.items()}
    found = loaded["generate"](prompt=tf.constant(TEXTS), **columns)
    assert found["text"].numpy().tolist() == expected["text"].numpy().tolist()
    plain = loaded["serving_default"](prompt=tf.constant(TEXTS))
    expected = generate(TEXTS, max_length=5)
    assert plain["text"].numpy().tolist() == expected["text"].numpy().tolist()
    scored = loaded["score"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(
        scored["log_probability"], texts.score(tf.constant(TEXTS))["log_probability"], rtol=1e-4
    )
    columns["temperature"] = tf.zeros([4])
    with pytest.raises(tf.errors.InvalidArgumentError, match="temperature must be above 0"):
        loaded["generate"](prompt=tf.constant(TEXTS), **columns)


def test_stock_ops_alone(exported):
    from graph_checks import nodes

    found = {node.op for node in nodes(exported)}
    assert not {op for op in found if ">" in op or "PyFunc" in op or "Table" in op}
    assert not {op for op in found if op.startswith(("Fast", "Sentencepiece", "Regex"))}


def test_predict_runs_it(exported):
    rows = Predictor(exported)({"prompt": TEXTS})
    assert [sorted(row) for row in rows] == [
        ["finished", "log_probability", "num_new_tokens", "text"]
    ] * 4
    assert Predictor(exported).text_names == ("prompt",)
    scores = Predictor(exported, signature="score")({"text": TEXTS})
    assert [len(row["tokens"]) for row in scores] == [row["num_tokens"] for row in scores]


def test_the_description_tells_task_options_and_size(exported, model):
    described = json.loads((exported / "assets.extra" / "keras_transformers.json").read_text())
    assert described["task"] == "generation"
    assert described["max_length"] == 5
    assert described["model"]["num_parameters"] == model.count_params()


def test_a_model_of_few_positions_is_checked_on_shorter_texts(bpe, tmp_path):
    short = gpt(vocabulary_size=270, num_layers=1, num_heads=1, hidden_dim=4, max_sequence_length=5)
    folder = generator(short, bpe, tmp_path / "1")
    rows = Predictor(folder, signature="score")({"text": ["the", ""]})
    assert [row["num_tokens"] for row in rows] == [len(bpe.tokenize(["the"]).to_list()[0]), 0]
    with pytest.raises(ValueError, match=r"out of its range: a prompt is longer than the 5 pos"):
        generator(short, bpe, tmp_path / "2", examples=["a prompt"])
    assert not (tmp_path / "2").exists()


def test_what_does_not_fit_is_refused(bpe, tmp_path):
    encoder = bert(vocabulary_size=270, num_layers=1, num_heads=1, hidden_dim=4)
    with pytest.raises(ValueError, match="model 'bert' is no causal language model"):
        generator(encoder, bpe, tmp_path)
    other = gpt(vocabulary_size=11, num_layers=1, num_heads=1, hidden_dim=4)
    with pytest.raises(ValueError, match="the tokenizer has 270 tokens and model 'gpt' 11"):
        generator(other, bpe, tmp_path)
    assert not list(tmp_path.iterdir())
