import threading

import keras
import numpy as np
import pytest
import tiny

import keras_transformers as kt
from keras_transformers.inspection import attention

TEXT_TASKS = (
    *("classification", "regression", "embedding", "fill_mask", "tagging"),
    *("next_sentence", "question_answering"),
)


def check(found, kinds):
    assert list(found) == kinds
    for each in found.values():
        assert each.probabilities.shape[2:] == (len(each.queries), len(each.keys))
        np.testing.assert_allclose(each.probabilities.sum(axis=-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("task", TEXT_TASKS)
def test_encoders_show_every_layer_and_head_with_tokens(task):
    pipeline = tiny.pipeline(task)
    found = attention(pipeline, *["a good film"] * len(pipeline.text_names))
    check(found, ["encoder"])
    assert found["encoder"].probabilities.shape[:2] == (1, 2)
    assert found["encoder"].keys[:4] == ["[CLS]", "a", "good", "film"]


def test_calls_in_other_threads_are_not_seen(monkeypatch):
    pipeline = tiny.pipeline("classification")
    shown = attention(pipeline, "a good film")["encoder"]
    read = type(pipeline).read

    def with_another_call(pipeline, *texts):
        thread = threading.Thread(target=read, args=(pipeline, "a bad film"))
        thread.start()
        thread.join()
        return read(pipeline, *texts)

    monkeypatch.setattr(type(pipeline), "read", with_another_call)
    beside = attention(pipeline, "a good film")["encoder"]
    np.testing.assert_array_equal(beside.probabilities, shown.probabilities)


def test_the_probabilities_are_the_layers_own():
    pipeline = tiny.pipeline("classification")
    found = attention(pipeline, "a good film")["encoder"]
    tokens = pipeline.encode(["a good film"])
    model = pipeline.model
    part = keras.Model(model.input, model.get_layer("encoder_layer_0").input)
    hidden, mask = part(tokens)
    _, scores = model.get_layer("encoder_layer_0")(
        hidden, attention_mask=mask, return_attention_scores=True
    )
    np.testing.assert_allclose(found.probabilities[0], scores[0], atol=1e-6)


def test_a_language_model_sees_the_past_only():
    found = attention(tiny.pipeline("generation"), "a small dog")
    check(found, ["decoder"])
    probabilities = found["decoder"].probabilities
    assert np.triu(probabilities[0, 0], k=1).max() == 0


def test_a_translator_shows_three_kinds():
    pipeline = tiny.pipeline("translation")
    found = attention(pipeline, "two dogs", "ein kleiner Hund")
    check(found, ["encoder", "decoder", "cross"])
    assert found["cross"].keys == found["encoder"].keys
    assert found["cross"].queries[:-1] == found["decoder"].queries[1:]
    shown = pipeline.attend(["two dogs"], ["ein kleiner Hund"])["attention"][0]
    np.testing.assert_allclose(found["cross"].probabilities[-1].mean(axis=0), shown, atol=1e-6)


def test_a_translators_own_translation_is_not_watched_while_its_graph_is_traced():
    fresh = tiny.pipeline("translation").with_options(num_beams=2)
    found = attention(fresh, "two dogs")
    again = attention(fresh, "two dogs", fresh("two dogs").text)
    for kind, maps in found.items():
        np.testing.assert_array_equal(maps.probabilities, again[kind].probabilities)


def test_a_recurrent_model_shows_its_alignment():
    tokenizer = tiny.sentence_pieces()
    model = tiny.seq2seq(
        vocabulary_size=tokenizer.vocabulary_size,
        cell="gru",
        num_encoder_layers=1,
        num_decoder_layers=1,
        embedding_dim=8,
        hidden_dim=8,
        attention="additive",
    )
    pipeline = kt.pipelines.Translator(model, tokenizer, max_sequence_length=16)
    found = attention(pipeline, "two dogs", "ein kleiner Hund")
    check(found, ["cross"])
    assert found["cross"].probabilities.shape[:2] == (1, 1)


def test_an_image_is_a_grid_of_patches():
    pipeline = tiny.pipeline("image_classification")
    image = pipeline.example_batches(None)[0]["image_bytes"][0]
    found = attention(pipeline, image)
    check(found, ["encoder"])
    assert found["encoder"].keys[:3] == ["[CLS]", "0,0", "0,1"]


def test_rollout_of_two_layers_by_hand():
    one = np.array([[0.5, 0.5], [0.0, 1.0]])
    two = np.array([[1.0, 0.0], [1.0, 0.0]])
    maps = kt.inspection.AttentionMap(np.stack([one, two])[:, None], ["a", "b"], ["a", "b"])
    np.testing.assert_allclose(maps.rollout(), [[0.75, 0.25], [0.375, 0.625]])
    crossed = kt.inspection.AttentionMap(maps.probabilities, ["a", "b"], ["x", "y"])
    with pytest.raises(ValueError, match="rollout is for self-attention"):
        crossed.rollout()


def test_a_model_without_attention_is_refused():
    with pytest.raises(ValueError, match="WordEmbedder: .*no attention"):
        attention(tiny.pipeline("word_embedding"), "a film")
