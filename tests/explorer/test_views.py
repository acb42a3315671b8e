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
from keras_transformers.inspection.attention_maps import attention_layers
from keras_transformers.layers.relative_positions import RelativePositionBias, buckets
from keras_transformers.layers.scopes import WATCHERS
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


def floats(packed, *shape):
    return np.frombuffer(base64.b64decode(packed), "<f4").reshape(shape)


def heads(shown, text, kind, layer):
    """The arrays of every head of a layer; what each head's own numbers add up to is checked."""
    (name,) = [each for each in ("text", "prompt") if each in shown.about["inputs"]]
    num_heads = shown.views["qkv"]({name: text, "kind": kind})["kinds"][kind][1]
    found = []
    for head in range(num_heads):
        each = shown.views["qkv"]({name: text, "kind": kind, "layer": layer, "head": head})
        queries, keys, dim = len(each["queries"]), len(each["keys"]), each["dim"]
        query, context = (floats(each[name], queries, dim) for name in ("query", "context"))
        key, value = (floats(each[name], keys, dim) for name in ("key", "value"))
        scores, shares = (floats(each[n], queries, keys) for n in ("scores", "probabilities"))
        expected = query @ key.T * each["scale"]
        if each["bias"]:
            expected += floats(each["bias"], queries, keys)
        visible = scores > -1e8
        np.testing.assert_allclose(scores[visible], expected[visible], rtol=1e-5, atol=1e-5)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        np.testing.assert_allclose(
            shares, weights / weights.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(context, shares @ value, rtol=1e-5, atol=1e-5)
        found.append(each | {"query": query, "key": key, "value": value, "context": context})
    return found


def test_one_heads_numbers_are_the_layers_own():
    pipeline = tiny.pipeline("classification")
    model = pipeline.model
    block = model.get_layer("encoder_layer_0")
    hidden, mask = keras.Model(model.input, block.input)(pipeline.encode(["a good film"]))
    layer = block.self_attention
    found = heads(subjects.of_pipeline("a", pipeline), "a good film", "encoder", 0)
    for name in ("query", "key", "value"):
        expected = getattr(layer, name)(hidden)[0].numpy()
        own = np.concatenate([each[name] for each in found], axis=1)
        np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)
    context = np.concatenate([each["context"] for each in found], axis=1)
    np.testing.assert_allclose(
        layer.output_projection(context[None]), layer(hidden, attention_mask=mask), atol=1e-5
    )
    assert found[1]["scale"] == 0.5
    assert [each["key_head"] for each in found] == [0, 1]


def test_a_translators_heads_are_of_three_kinds():
    shown = subjects.of_pipeline("a", tiny.pipeline("translation"))
    for kind in ("encoder", "decoder", "cross"):
        found = heads(shown, "two dogs", kind, 0)[0]
        masked = floats(found["scores"], len(found["queries"]), len(found["keys"])) < -1e8
        assert masked.any() == (kind == "decoder")
        if kind == "decoder":
            assert (masked == np.triu(np.ones_like(masked), k=1)).all()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "cross"}, "'cross'.*1 layers of 2 heads of kind 'encoder'"),
        ({"layer": 1}, "layer 1"),
        ({"head": -1}, "head -1"),
    ],
)
def test_an_unknown_head_is_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        view("classification", "qkv", text="a good film", **fields)


def test_too_many_tokens_have_no_head(monkeypatch):
    monkeypatch.setattr(views, "_MOST_POINTS", 10)
    with pytest.raises(ValueError, match="5 tokens.*give"):
        view("classification", "qkv", text="a good film")


def test_a_pair_is_read_as_tokens_segments_and_positions():
    texts = {"text": "a good film", "text_b": "bad"}
    found = view("next_sentence", "inputs", **texts)
    assert found["tokens"] == ["[CLS]", "a", "good", "film", "[SEP]", "bad", "[SEP]"]
    assert found["ids"] == [tiny.VOCABULARY.index(token) for token in found["tokens"]]
    assert found["segments"] == [0, 0, 0, 0, 0, 1, 1]
    model = tiny.pipeline("next_sentence").model
    read = {name: floats(vectors, 7, 8) for name, vectors in found["vectors"].items()}
    tables = {
        name: model.get_layer(f"{name}_embedding").embeddings.numpy()
        for name in ("token", "segment", "position")
    }
    rows = {"token": found["ids"], "segment": found["segments"], "position": range(7)}
    for name, table in tables.items():
        np.testing.assert_array_equal(read[name], table[list(rows[name])])
    np.testing.assert_allclose(
        read["sum"], read["token"] + read["segment"] + read["position"], rtol=1e-5, atol=1e-6
    )
    encoded = tiny.pipeline("next_sentence").encode(*([text] for text in texts.values()))
    before_norm = keras.Model(model.input, model.get_layer("position_embedding").output)
    np.testing.assert_array_equal(read["sum"], before_norm(encoded)[0])


def test_wide_vectors_are_drawn_in_part(monkeypatch):
    monkeypatch.setattr(views, "_MOST_VALUES", 3)
    found = view("multiple_choice", "inputs", text="a good film", choices=["bad", "good"])
    assert (found["shown"], found["width"]) == (3, 8)
    assert floats(found["vectors"]["sum"], 7, 3).shape == (7, 3)
    assert found["segments"][-2:] == [1, 1]  # of the first choice


def test_a_decoder_without_segments_reads_tokens_and_positions():
    found = view("generation", "inputs", prompt="two dogs")
    assert found["segments"] is None
    assert list(found["vectors"]) == ["token", "position", "sum"]


@pytest.mark.one_case
@pytest.mark.parametrize("task", ["translation", "generation", "recurrent"])
def test_the_steps_of_decoding_are_those_of_the_model(task):
    """A pass over the whole text computes the same as the steps, to float32 rounding."""
    if task == "recurrent":
        tokens = tiny.sentence_pieces()
        model = tiny.lively(tiny.seq2seq(vocabulary_size=tokens.vocabulary_size, hidden_dim=8))
        pipeline = kt.pipelines.Translator(model, tokens, max_sequence_length=9, num_beams=2)
    else:
        pipeline = tiny.pipeline(task)
    text = "a small dog"
    (name,) = pipeline.text_names
    found = subjects.of_pipeline("a", pipeline).views["decoding"]({name: text})
    steps, predicted = found["steps"], found["predicted"]
    assert len(steps) == len(predicted) > 1
    assert found["target"][len(found["target"]) - len(steps) + 1 :] == predicted[:-1]
    tokenizer = getattr(pipeline, "target_tokenizer", None) or pipeline.tokenizer
    place = {token: i for i, token in enumerate(tokenizer.vocabulary)}
    read = tf.constant([[place[token] for token in found["target"]]])
    if task == "generation":
        written = tokenizer.detokenize([[place[token] for token in predicted]]).numpy()[0]
        answer = pipeline(text, top_k=1, max_length=len(steps))
        assert answer.text == written.decode("utf-8", "replace")
        inputs, kinds = {"token_ids": read}, {"decoder"}
    else:
        # A forced end token cuts the text that a greedy translation returns.
        source = pipeline._source(tf.constant([text]))
        assert found["source"] == [tokenizer.vocabulary[i] for i in source[0].numpy()]
        inputs = {"source_token_ids": source, "target_token_ids": read}
        kinds = {"cross"} if task == "recurrent" else {"cross", "decoder"}
    kept = []
    layers = [x for x in attention_layers(pipeline.model) if x[1] in kinds]
    watchers = {
        layer: lambda attended, kind=kind: kept.append((kind, attended.probabilities[0]))
        for layer, kind in layers
    }
    with WATCHERS.use(watchers):
        logits = pipeline.model(inputs)["logits"][0, -len(steps) :]
        if task == "recurrent":
            pipeline.model.cross_attention_scores(source, read)
    for i, step in enumerate(steps):
        own = tf.nn.softmax(logits[i]).numpy()
        shown = [each["probability"] for each in step["alternatives"]]
        np.testing.assert_allclose(shown, np.sort(own)[::-1][:5], rtol=1e-4, atol=1e-6)
        assert set(step["attention"]) == kinds
        for kind, maps in kept:
            row = np.asarray(maps)[:, len(found["target"]) - len(steps) + i].mean(axis=0)
            attention = floats(step["attention"][kind], -1)
            np.testing.assert_allclose(attention, row[: len(attention)], rtol=1e-4, atol=1e-6)
            assert np.abs(row[len(attention) :]).max(initial=0) == 0


def test_nothing_to_translate_has_no_steps():
    assert view("translation", "decoding", text="")["steps"] == []


def test_shares_are_those_of_the_explanation_and_of_the_rollout():
    found = view("classification", "shares", text="a good film")
    why = kt.explain(tiny.pipeline("classification"), "a good film")
    assert found["gradient"] == {
        "tokens": ["a", "good", "film"],
        "shares": why.shares.tolist(),
        "label": why.label,
    }
    assert sum(found["rollout"]["shares"]) == pytest.approx(1, abs=1e-5)
    assert found["rollout"]["tokens"] == ["[CLS]", "a", "good", "film", "[SEP]"]


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


@pytest.mark.one_case
@pytest.mark.parametrize("prompt", ["two dogs", ""])
@pytest.mark.parametrize("make", [lambda: tiny.pipeline("generation"), tiny.talker])
def test_next_tokens_are_those_of_the_steps_of_decoding(make, prompt):
    """Tokenizers without special tokens put nothing before a prompt that is not empty."""
    shown = subjects.of_pipeline("a", make()).views
    added = []
    for step in shown["decoding"]({"prompt": prompt})["steps"][:2]:
        following = shown["next"]({"prompt": prompt, "added": added, "count": 5})["alternatives"]
        np.testing.assert_allclose(
            [each["probability"] for each in following],
            [each["probability"] for each in step["alternatives"]],
            rtol=1e-4,
        )
        added.append(following[0]["id"])


@pytest.mark.slow
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
    found = heads(subjects.of_pipeline("llama", pipeline), "two dogs", "decoder", 1)
    assert [each["key_head"] for each in found] == [0, 0, 1, 1]
    np.testing.assert_array_equal(found[2]["key"], found[3]["key"])
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


@pytest.mark.slow
def test_a_chat_is_the_pipelines():
    shown = subjects.of_pipeline("talker", tiny.talker())
    assert "chat" in shown.about["views"]
    messages = [{"role": "user", "content": "abc"}]
    found = shown.views["chat"]({"messages": messages, "max_length": 5, "top_k": 1})
    assert found["text"] == tiny.talker().chat(messages, max_length=5, top_k=1).text
    with pytest.raises(ValueError, match="positions"):
        shown.views["chat"]({"messages": [{"role": "user", "content": "abc " * 200}]})
    assert "chat" not in subjects.of_pipeline("plain", tiny.pipeline("generation")).views
