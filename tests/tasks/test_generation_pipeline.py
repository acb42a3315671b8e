import json

import numpy as np
import pytest
import tensorflow as tf
import tiny
from graph_checks import nodes

import keras_transformers as kt
from keras_transformers.decoding import greedy_search
from keras_transformers.families.bert.model import bert
from keras_transformers.families.gpt.model import gpt
from keras_transformers.pipelines import Generation, TextGenerator
from keras_transformers.saved_model.checks import check
from keras_transformers.saved_model.prediction import Predictor

TEXTS = ["two dogs are near the shore", "", "two", "two dogs é"]
PLAIN = {"max_length": 6, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0}
DTYPES = {"temperature": tf.float32, "top_p": tf.float32, "seed": tf.int64}
POSITIONS = 24


@pytest.fixture(scope="module")
def pipeline():
    """A pipeline that draws 4 tokens per text."""
    return tiny.pipeline("generation")


@pytest.fixture(scope="module")
def bpe(pipeline):
    return pipeline.tokenizer


@pytest.fixture(scope="module")
def model(pipeline):
    return pipeline.model


@pytest.fixture(scope="module")
def generate(pipeline):
    """Runs `TextGenerator.generate` in a graph, with default options where none are given."""
    specs = [tf.TensorSpec([None], DTYPES.get(name, tf.int32)) for name in PLAIN]
    graph = tf.function(
        pipeline.generate,
        input_signature=[tf.TensorSpec([None], tf.string), *specs],
        autograph=False,  # as the pipeline itself
    )

    def run(prompts, **options):
        columns = {
            name: np.broadcast_to(value, [len(prompts)])
            for name, value in (PLAIN | options).items()
        }
        return graph(
            tf.constant(prompts, tf.string),
            *(tf.constant(columns[name], DTYPES.get(name, tf.int32)) for name in PLAIN),
        )

    return run


@pytest.fixture(scope="module")
def exported():
    return tiny.exported("generation")


def log_probabilities(model, bpe, text):
    """Scores each token of a text after the start token by calling the model itself."""
    ids = [bpe.start_token_id, *bpe.tokenize([text]).to_list()[0]]
    logits = model({"token_ids": np.array([ids], "int32")}, training=False)["logits"][0]
    log_probs = tf.nn.log_softmax(logits).numpy()
    return [log_probs[i, token] for i, token in enumerate(ids[1:])]


def test_options_of_a_call_hold_for_it_alone(pipeline):
    assert [pipeline("two", max_length=n).num_new_tokens for n in (2, 3)] == [2, 3]
    graph = pipeline._graph
    several = {pipeline("two", seed=seed, temperature=9.0).text for seed in range(4)}
    assert len(several) > 1
    (twice,) = {pipeline("two", seed=5).text, pipeline.with_options(seed=5)("two").text}
    assert pipeline.rows({"prompt": ["two"]}, seed=5)[0]["text"] == twice
    assert pipeline("two").num_new_tokens == pipeline.max_length == 4
    assert pipeline._graph is graph, "traced again"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 5}, "options max_new_tokens: use max_length.*counts new tokens"),
        ({"max_length": "5"}, "max_length='5': max_length must be an integer"),
        ({"max_length": 2.5}, "max_length=2.5: max_length must be an integer"),
        ({"max_length": -1}, "max_length=-1: max_length must be 0 or more"),
        ({"top_k": 2**40}, "top_k=1099511627776: "),
        ({"seed": True}, "seed=True: seed must be an integer"),
        ({"temperature": 0}, "temperature=0.0: temperature must be above 0"),
        ({"temperature": None}, "temperature=None: temperature must be a number"),
        ({"stop": ["a", 5]}, "stop=.*non-empty string"),
    ],
)
def test_options_of_a_call_that_are_wrong_are_refused(options, message, pipeline):
    with pytest.raises(ValueError, match=message):
        pipeline("two", **options)


def test_by_default_the_likeliest_token_is_taken(pipeline, model, bpe):
    def chosen(**options):
        found = TextGenerator(model, bpe, **options)
        return found.top_k, found.temperature, found.top_p

    assert chosen() == chosen(seed=3, repetition_penalty=2.0) == (1, 1.0, 1.0)
    assert chosen(temperature=0.5) == (0, 0.5, 1.0)
    assert chosen(top_p=0.5) == (0, 1.0, 0.5)
    assert chosen(temperature=1.0) == (0, 1.0, 1.0)
    assert chosen(temperature=0.5, top_k=1) == (1, 0.5, 1.0)
    greedy = TextGenerator(model, bpe, max_length=4)
    assert greedy("two") == greedy("two", seed=8) == pipeline("two", top_k=1)
    assert greedy("two", temperature=0.9, seed=2) == pipeline("two", temperature=0.9, seed=2)
    greedy.temperature = 0.9
    assert greedy("two", seed=2) == pipeline("two", temperature=0.9, seed=2)


def test_one_prompt_or_many(pipeline, generate):
    found = pipeline(TEXTS)
    expected = generate(TEXTS, max_length=4)
    assert [type(generation) for generation in found] == [Generation] * 4
    assert [generation.text.encode() for generation in found] == expected["text"].numpy().tolist()
    assert [generation.num_new_tokens for generation in found] == [4] * 4
    assert pipeline(TEXTS[2]).text == found[2].text
    assert pipeline([]) == []


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


def test_the_rest_of_a_batch_changes_nothing(generate):
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
    """Each of 270 log-probabilities, -5.6, overflows when divided by so small a number."""
    flat = gpt(vocabulary_size=270, num_layers=1, num_heads=1, hidden_dim=4, max_sequence_length=4)
    flat.set_weights([np.zeros_like(weight) for weight in flat.get_weights()])
    columns = {"max_length": 1, "temperature": 1.2e-38, "top_k": 0, "top_p": 1.0}
    rows = {name: np.full(50, value) for name, value in columns.items()}
    found = TextGenerator(flat, bpe).generate(tf.constant(["two"] * 50), **rows, seed=range(50))
    np.testing.assert_allclose(found["log_probability"], -np.log(270), rtol=1e-4)
    assert len(set(found["text"].numpy())) > 20


def test_seeds_decide(generate):
    same = generate(["two"] * 3, seed=[1, 1, 2])["text"].numpy()
    assert same[0] == same[1] != same[2]


def test_tokens_come_as_often_as_the_model_says(model, bpe, generate):
    """Compares the first tokens of many texts with the filtered distribution."""
    ids = np.array([[bpe.start_token_id, *bpe.tokenize(["two"]).to_list()[0]]], "int32")
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
        ["two"] * number, max_length=1, temperature=1.5, top_k=20, top_p=0.8, seed=range(number)
    )
    log_probs = tf.nn.log_softmax(scores * 1.5).numpy()  # so that tokens differ clearly
    drawn = np.abs(found["log_probability"].numpy()[:, None] - log_probs[kept]).argmin(1)
    np.testing.assert_allclose(
        found["log_probability"], log_probs[kept][drawn], atol=1e-4
    )  # nothing else was drawn
    shares = np.bincount(drawn, minlength=len(kept)) / number
    assert len(kept) > 3
    assert np.abs(shares - expected).max() < 4 * np.sqrt(0.25 / number)


def test_a_score_is_the_sum_of_its_tokens(model, bpe, pipeline):
    found = pipeline.score(tf.constant(TEXTS))
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
    assert pipeline.score(tf.constant([""]))["log_probability"].numpy().tolist() == [0.0]


def test_a_models_documents_are_all_one(bpe):
    model = gpt(
        vocabulary_size=270,
        num_layers=1,
        num_heads=1,
        hidden_dim=8,
        max_sequence_length=POSITIONS,
        separate_documents=True,
    )
    assert TextGenerator(model, bpe).score(tf.constant(["two"]))["log_probability"].shape == (1,)


def test_the_text_ends_where_the_positions_do(generate):
    prompt = "z" * (POSITIONS - 3)  # plus the start token
    found = generate([prompt], max_length=50, top_k=1)
    assert found["num_new_tokens"][0] <= 3
    assert generate(["z" * (POSITIONS - 1)], max_length=50)["num_new_tokens"][0] == 1


@pytest.mark.parametrize("lengths", [[50, 20], [0, 20]])
def test_a_row_without_positions_left_stops_no_other(generate, lengths):
    """A complete text is fed on until the other one is complete."""
    prompts = ["z" * (POSITIONS - 3), "two"]
    together = generate(prompts, max_length=lengths, top_k=1)
    for row, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        alone = generate([prompt], max_length=length, top_k=1)
        assert alone["text"][0] == together["text"][row]
        assert alone["num_new_tokens"][0] == together["num_new_tokens"][row]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature .*above 0; .*likeliest"),
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
def test_options_out_of_range_are_refused(generate, model, bpe, options, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        generate(["two", "two"], **options)
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}={value}: {message}"):
        TextGenerator(model, bpe, **options)


def test_one_option_for_several_prompts_is_refused(pipeline):
    rows = {"max_length": [4, 4], "temperature": [1.0, 1.0], "top_k": [0, 0], "top_p": [1.0, 1.0]}
    with pytest.raises(tf.errors.InvalidArgumentError, match="seed .*each"):
        pipeline.generate(tf.constant(["two", "two"]), **rows, seed=[1])


def test_texts_beyond_the_positions_are_refused(generate, pipeline):
    with pytest.raises(tf.errors.InvalidArgumentError, match="prompt .*24"):
        generate(["two", "z" * POSITIONS])
    with pytest.raises(tf.errors.InvalidArgumentError, match="text .*24"):
        pipeline.score(tf.constant(["z" * (POSITIONS + 1)]))
    assert pipeline.score(tf.constant(["z" * POSITIONS]))["num_tokens"].numpy().tolist() == [24]


@pytest.mark.slow
def test_the_export_does_what_the_pipeline_does(exported, generate, pipeline):
    assert list(check.failures(str(exported))) == []
    loaded = tf.saved_model.load(str(exported))
    signatures = loaded.signatures
    assert {name for name in signatures if not name.startswith("__")} == {
        "serving_default", "generate", "complete", "complete_tokens", "choose", "score", "tokenize"
    }  # fmt: skip
    options = {"max_length": 6, "temperature": 0.8, "top_k": 9, "top_p": 0.9, "seed": 11}
    expected = generate(TEXTS, **options)
    columns = {k: tf.fill([4], tf.cast(v, DTYPES.get(k, tf.int32))) for k, v in options.items()}
    found = signatures["generate"](prompt=tf.constant(TEXTS), **columns)
    assert found["text"].numpy().tolist() == expected["text"].numpy().tolist()
    plain = signatures["serving_default"](prompt=tf.constant(TEXTS))["text"].numpy()
    assert [text.decode() for text in plain] == [generation.text for generation in pipeline(TEXTS)]
    scored = signatures["score"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(
        scored["log_probability"], pipeline.score(tf.constant(TEXTS))["log_probability"], rtol=1e-4
    )
    choices = tf.constant([["two", "two dogs"]] * 4)
    chosen = signatures["choose"](prompt=tf.constant(TEXTS), choices=choices)
    for answer, row in zip(pipeline.choose(TEXTS, ["two", "two dogs"]), range(4), strict=True):
        assert chosen["text"][row].numpy().decode() == answer.text
        np.testing.assert_allclose(chosen["probabilities"][row], answer.probabilities, rtol=1e-4)
    read = signatures["tokenize"](prompt=tf.constant(TEXTS))
    assert read["num_tokens"].numpy().tolist() == expected["num_prompt_tokens"].numpy().tolist()
    columns["temperature"] = tf.zeros([4])
    with pytest.raises(tf.errors.InvalidArgumentError, match="temperature must be above 0"):
        signatures["generate"](prompt=tf.constant(TEXTS), **columns)


@pytest.mark.slow
def test_stock_ops_alone(exported):
    found = {node.op for node in nodes(exported)}
    assert not {op for op in found if ">" in op or "PyFunc" in op or "Table" in op}
    assert not {op for op in found if op.startswith(("Fast", "Sentencepiece", "RegexSplit"))}


@pytest.mark.slow
def test_predict_runs_it(exported, pipeline):
    predictor = Predictor(exported)
    assert predictor.text_names == ("prompt",)
    rows = predictor({"prompt": TEXTS})
    assert [row["text"] for row in rows] == [generation.text for generation in pipeline(TEXTS)]
    assert {tuple(row) for row in rows} == {
        ("finished", "log_probability", "num_new_tokens", "num_prompt_tokens", "text")
    }
    scores = Predictor(exported, signature="score")({"text": TEXTS})
    assert [len(row["tokens"]) for row in scores] == [row["num_tokens"] for row in scores]


@pytest.mark.slow
def test_the_description_tells_task_options_and_size(exported, model):
    described = json.loads((exported / "assets.extra" / "keras_transformers.json").read_text())
    assert described["task"] == "generation"
    assert (described["max_length"], described["seed"]) == (4, 0)
    assert described["max_sequence_length"] == POSITIONS
    assert described["lengths"] == {"num_tokens": ["tokens", "token_log_probabilities"]}
    assert described["tolerance"] == 1e-5
    assert described["model"]["num_parameters"] == model.count_params()
    signatures = described["signatures"]
    assert {name: len(s["examples"]) for name, s in signatures.items()} == {
        "serving_default": 1,
        "generate": 3,
        "score": 3,
        "complete": 1,
        "complete_tokens": 1,
        "choose": 2,
        "tokenize": 3,
    }


def test_saved_and_loaded_it_continues_alike(pipeline, tmp_path):
    loaded = kt.load(pipeline.save(tmp_path / "saved"))
    assert type(loaded.model) is type(pipeline.model)
    assert loaded.config() == pipeline.config()
    for one, other in zip(loaded.model.weights, pipeline.model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    answers = loaded.answer(prompt=tf.constant(TEXTS))  # eagerly: without one more graph
    for name, value in pipeline.answer(prompt=tf.constant(TEXTS)).items():
        np.testing.assert_array_equal(answers[name], value)


def test_a_model_of_few_positions_is_checked_on_shorter_texts(bpe):
    short = gpt(vocabulary_size=270, num_layers=1, num_heads=1, hidden_dim=4, max_sequence_length=5)
    pipeline = TextGenerator(short, bpe)
    batches = pipeline.example_batches(None)
    assert [batch["prompt"].tolist() for batch in batches] == [
        [b"Th", b"It"],
        [b"", b"\xff\xfe", b"  "],
        [],
    ]
    for batch in batches:
        pipeline.answer(prompt=tf.constant(batch["prompt"], tf.string))
    with pytest.raises(ValueError, match=r"'a prompt': 9 tokens .* the model has 5 positions"):
        pipeline.example_batches(["a prompt"])
    with pytest.raises(ValueError, match="examples must be strings, not 3"):
        pipeline.example_batches([3])


def test_what_does_not_fit_is_refused(bpe):
    encoder = bert(vocabulary_size=270, num_layers=1, num_heads=1, hidden_dim=4)
    with pytest.raises(ValueError, match="'bert'.*model"):
        TextGenerator(encoder, bpe)
    other = gpt(vocabulary_size=11, num_layers=1, num_heads=1, hidden_dim=4)
    with pytest.raises(ValueError, match="270 tokens.*'gpt'.*11"):
        TextGenerator(other, bpe)


def test_an_encoder_is_refused_with_the_families_that_generate(bpe):
    encoder = bert(vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=8, name="reader")
    with pytest.raises(ValueError, match=r"'reader' .* families .*gpt.*llama.*list_models"):
        TextGenerator(encoder, bpe)
