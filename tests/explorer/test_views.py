"""What the explorer's page gets: it must agree with what the models and searches do."""

import base64
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers.explorer import subjects, views
from keras_transformers.explorer.spellings import spell
from keras_transformers.inspection import attention
from keras_transformers.layers.relative_positions import RelativePositionBias, buckets
from keras_transformers.tasks.task import all_tasks

BUCKETS = {"num_buckets": 8, "max_distance": 16, "bidirectional": True}


def view(task, name, **given):
    subject = subjects.of_pipeline(task, tiny.pipeline(task))
    return subject.views[name](given)


def test_attention_is_that_of_the_inspection_room():
    found = view("classification", "attention", text="a good film")["encoder"]
    expected = attention(tiny.pipeline("classification"), "a good film")["encoder"]
    shares = np.frombuffer(base64.b64decode(found["probabilities"]), "<u2") / 65535
    np.testing.assert_allclose(
        shares.reshape(found["shape"]), expected.probabilities, rtol=0, atol=1e-5
    )
    assert found["keys"] == ["[CLS]", "a", "good", "film", "[SEP]"]


def test_too_many_tokens_are_refused(monkeypatch):
    monkeypatch.setattr(views, "_MOST_POINTS", 10)
    with pytest.raises(ValueError, match="5 tokens.*give"):
        view("classification", "attention", text="a good film")


def test_gradient_times_input_is_the_slope_of_the_answers_logit():
    """Scaling one token's embedding by 1 + e changes the logit by e times its share."""
    pipeline = tiny.pipeline("classification")
    found = view("classification", "shares", text="a good film")
    embedding = pipeline.model.get_layer("token_embedding")
    table = embedding.embeddings.numpy()
    step, tokens = 1e-3, pipeline.encode(tf.constant(["a good film"]))["token_ids"][0].numpy()

    def logit(token_id, factor):
        changed = table.copy()
        changed[token_id] *= factor
        embedding.embeddings.assign(changed)
        return pipeline.model(pipeline.encode(tf.constant(["a good film"])))["logits"][0].numpy()

    try:
        chosen = np.argmax(logit(tokens[0], 1.0))
        for place, token_id in enumerate(tokens):
            slope = (logit(token_id, 1 + step) - logit(token_id, 1 - step))[chosen] / (2 * step)
            assert found["gradient"][place] == pytest.approx(slope, abs=2e-3)
    finally:
        embedding.embeddings.assign(table)
    assert sum(found["rollout"]) == pytest.approx(1, abs=1e-5)


def test_beams_lead_to_the_translations_that_the_search_finds():
    found = view("translation", "beams", text="a small dog")
    texts = tiny.pipeline("translation").n_best(tf.constant(["a small dog"]))
    assert [each["text"] for each in found["results"]] == [
        text.decode("utf-8", "replace") for text in texts["translations"][0].numpy()
    ]
    alive = found["steps"][0]["alive"]
    assert [each["log_probability"] for each in alive] == sorted(
        (each["log_probability"] for each in alive), reverse=True
    )
    for before, step in zip(found["steps"], found["steps"][1:], strict=False):
        for each in step["alive"]:  # a hypothesis never scores more than the one it continues
            parent = before["alive"][each["parent"]]
            assert each["log_probability"] <= parent["log_probability"] + 1e-5
    ended = [each["score"] for step in found["steps"] for each in step["ended"]]
    for each in found["results"]:
        if len(each["text"]) < 10:  # not cut at the end
            assert min(abs(each["score"] - score) for score in ended) < 1e-4


def test_next_tokens_are_those_of_the_model():
    found = view("generation", "next", prompt="two dogs")
    probabilities = [each["probability"] for each in found["alternatives"]]
    assert probabilities == sorted(probabilities, reverse=True)
    best = found["alternatives"][0]
    after = view("generation", "next", prompt="two dogs", added=[best["id"]])
    assert after["text"].startswith("two dogs")
    greedy = tiny.pipeline("generation").generate(
        **{
            name: tf.constant([value])
            for name, value in {
                "prompt": "two dogs",
                "max_length": 1,
                "temperature": 1.0,
                "top_k": 1,
                "top_p": 1.0,
            }.items()
        },
        seed=tf.constant([0], tf.int64),
    )
    assert np.log(best["probability"]) == pytest.approx(
        float(greedy["log_probability"][0]), abs=1e-4
    )
    full = view("generation", "next", prompt="two dogs", added=[1] * 40)
    assert full["is_full"]
    assert not full["alternatives"]


def test_a_llama_shows_its_next_tokens_and_every_query_head():
    """Its queries and keys are turned, and two heads of queries share one of keys."""
    tokenizer = tiny.byte_pairs()
    model = kt.families.llama.llama(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=2,
        num_heads=4,
        num_key_value_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        max_sequence_length=16,
    )
    pipeline = kt.pipelines.TextGenerator(tiny.lively(model), tokenizer, max_length=1, top_k=1)
    shown = subjects.of_pipeline("llama", pipeline).views
    best = shown["next"]({"prompt": "two dogs"})["alternatives"][0]
    after = shown["next"]({"prompt": "two dogs", "added": [best["id"]]})
    assert after["text"] == "two dogs" + pipeline("two dogs").text
    maps = shown["attention"]({"prompt": "two dogs"})["decoder"]
    length = len(maps["keys"])
    assert maps["shape"] == (2, 4, length, length)
    shares = np.frombuffer(base64.b64decode(maps["probabilities"]), "<u2") / 65535
    shares = shares.reshape(maps["shape"])
    np.testing.assert_allclose(shares.sum(axis=-1), 1, atol=1e-3)
    assert not np.triu(shares, k=1).any()
    assert not np.allclose(
        shares[:, 0], shares[:, 1], atol=1e-2
    )  # one head of keys, two of queries


@pytest.mark.parametrize("task", tiny.TASKS)
def test_the_tree_of_parameters_adds_up(task):
    pipeline = tiny.pipeline(task)
    tree = views.parameters(pipeline.model)

    def leaves(node):
        if not node["parts"]:
            assert np.prod(node["shape"]) == node["parameters"]
            return node["parameters"]
        total = sum(map(leaves, node["parts"]))
        assert total == node["parameters"]
        return total

    assert leaves(tree) == pipeline.model.count_params()


@pytest.mark.parametrize(
    ("task", "text", "kind"),
    [
        ("classification", "Good films, very unheard!", "wordpiece"),
        ("generation", "two dogs are near the shore", "byte_pairs"),
        ("translation", "ein kleiner Hund läuft", "sentencepiece"),
    ],
)
def test_the_last_step_of_a_word_is_its_tokens(task, text, kind):
    tokenizer = next(iter(tiny.pipeline(task).tokenizers.values()))
    found = spell(tokenizer, text)
    assert found["kind"] == kind
    assert [token for word in found["words"] for token in word["tokens"]] == found["tokens"]
    for word in found["words"]:
        if kind == "wordpiece":
            assert [each["piece"] for each in word["found"]] == word["tokens"]
        else:
            assert word["steps"][-1] == word["tokens"]
    if kind != "wordpiece":  # the steps are known, not only the result
        assert any(len(word["steps"]) > 1 for word in found["words"])


def test_wordpiece_tries_the_longest_piece_first():
    found = spell(tiny.wordpiece(), "films")
    assert found["words"] == [
        {
            "tokens": ["film", "##s"],
            "found": [{"piece": "film", "tried": ["films"]}, {"piece": "##s", "tried": []}],
        }
    ]


def test_positions_are_the_rows_of_the_embedding():
    found = view("classification", "positions")
    table = tiny.pipeline("classification").model.get_layer("position_embedding").embeddings.numpy()
    levels = np.frombuffer(base64.b64decode(found["values"]), np.uint8).reshape(16, 8)
    values = (levels.astype(float) - 127.5) / 127.5 * found["largest"]
    np.testing.assert_allclose(values, table, atol=found["largest"] / 127)


def test_relative_positions_are_the_biases_by_distance():
    bias = RelativePositionBias(8, 2, max_distance=16)
    inputs = keras.Input((None, 4))
    found = views.positions(keras.Model(inputs, bias(inputs)))
    assert (found["kind"], found["rows"], found["columns"]) == ("relative", 2, 65)
    levels = np.frombuffer(base64.b64decode(found["values"]), np.uint8).reshape(2, 65)
    values = (levels.astype(float) - 127.5) / 127.5 * found["largest"]
    expected = bias.embeddings.numpy()[buckets(range(-32, 33), **BUCKETS)].T
    np.testing.assert_allclose(values, expected, atol=found["largest"] / 127)


def test_each_task_and_each_of_its_inputs_has_its_name_in_chinese():
    words = Path(subjects.__file__).with_name("page").joinpath("words.js").read_text("utf-8")
    names = set(re.findall(r"\b([a-z_]+): \"[^a-z\"]", words.partition("\n  zh: {")[2]))
    for task in all_tasks():
        assert task in names, task
    for task in tiny.TASKS:
        inputs = set(tiny.pipeline(task).text_names)
        assert inputs <= names, (task, inputs - names)


LINES = ["a good film", "bad", "very long films!", "a"]


def test_a_search_finds_the_lines_by_cosine():
    found = view("embedding", "search", question="a good film", lines=LINES)
    embed = tiny.pipeline("embedding")
    asked = np.array(embed("a good film").vector)
    cosines = {}
    for line in LINES:
        vector = np.array(embed(line).vector)
        cosines[line] = vector @ asked / np.linalg.norm(vector) / np.linalg.norm(asked)
    assert [each["line"] for each in found] == sorted(LINES, key=lambda line: -cosines[line])
    assert found[0]["score"] == pytest.approx(1, abs=1e-5)
    for each in found:
        assert each["score"] == pytest.approx(cosines[each["line"]], abs=1e-5)
        assert LINES[each["place"]] == each["line"]
    assert found[0]["tokens"] == ["a", "good", "film"]


def test_a_tokens_share_is_what_the_cosine_loses_without_it(monkeypatch):
    embed = tiny.pipeline("embedding")

    def cosine(text):
        pair = [np.array(each.vector) for each in embed(["bad", text])]
        return np.dot(*pair) / np.prod([np.linalg.norm(each) for each in pair])

    found = view("embedding", "search", question="bad", lines=["a good film", "bad"])[-1]
    without = [cosine(text) for text in ("good film", "a film", "a good")]
    expected = cosine("a good film") - np.array(without)
    np.testing.assert_allclose(found["shares"], expected, atol=1e-5)
    monkeypatch.setattr(views, "_MOST_READ", 9)  # "bad" takes 1, "a good film" would take 9
    found = view("embedding", "search", question="bad", lines=["a good film", "bad"])
    assert ["shares" in each for each in found] == [True, False]


def test_a_search_uses_the_prompts_for_questions_and_texts():
    plain = tiny.pipeline("embedding")
    prompts = {"query": "very ", "passage": "bad "}
    prompted = kt.pipelines.Embedder(plain.model, plain.tokenizer, prompts=prompts)
    found = subjects.of_pipeline("e", prompted).views["search"](
        {"question": "film", "lines": ["film"]}
    )
    vectors = [np.array(plain(text).vector) for text in ("very film", "bad film")]
    assert found[0]["score"] == pytest.approx(
        np.dot(*vectors) / np.prod([np.linalg.norm(each) for each in vectors]), abs=1e-5
    )
    assert found[0]["tokens"] == ["bad", "film"]


def test_a_search_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one line"):
        view("embedding", "search", question="a", lines=[])


def test_a_chat_is_the_pipelines():
    shown = subjects.of_pipeline("talker", tiny.talker())
    assert "chat" in shown.about["views"]
    messages = [{"role": "user", "content": "abc"}]
    found = shown.views["chat"]({"messages": messages, "max_length": 5, "top_k": 1})
    assert found["text"] == tiny.talker().chat(messages, max_length=5, top_k=1).text
    with pytest.raises(ValueError, match="positions"):
        shown.views["chat"]({"messages": [{"role": "user", "content": "abc " * 200}]})
    assert "chat" not in subjects.of_pipeline("plain", tiny.pipeline("generation")).views
