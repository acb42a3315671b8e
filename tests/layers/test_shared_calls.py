"""Tests of blocks that share the graph of a step."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers.families.bert.model import bert
from keras_transformers.families.llama import llama
from keras_transformers.layers import TransformerBlock
from keras_transformers.layers.scopes import WATCHERS
from keras_transformers.layers.shared import shared_calls

IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], np.int32)


def decoder(**options):
    sizes = {"vocabulary_size": 50, "num_layers": 3, "num_heads": 4, "num_key_value_heads": 2}
    return llama(**sizes, hidden_dim=16, intermediate_dim=32, **options)


def next_logits(model, token_ids=IDS):
    step, last_token_ids, cache = model.start_decoding(token_ids)
    return step(last_token_ids, 0, cache)[0]


def graph_of(model):
    spec = tf.TensorSpec([None, None], tf.int32)
    run = tf.function(lambda token_ids: next_logits(model, token_ids), autograph=False)
    return run.get_concrete_function(spec)


def functions_of(graph):
    """Returns the name of the function of each call, in order."""
    calls = [op for op in graph.graph.get_operations() if op.type == "PartitionedCall"]
    return [call.get_attr("f").name for call in calls]


def test_blocks_are_calls_of_one_function():
    model = decoder()
    graph = graph_of(model)
    prompt, step = np.split(np.array(functions_of(graph)), 2)
    assert len(set(prompt)) == len(set(step)) == 1
    assert len(prompt) == len(step) == 3
    attributes = graph.graph.as_graph_def().library.function
    assert all(f.attr["_noinline"].b for f in attributes if f.signature.name in {*prompt, *step})
    np.testing.assert_allclose(graph(tf.constant(IDS)), next_logits(model), rtol=1e-5, atol=1e-6)


def test_models_of_one_structure_share_functions_and_not_weights():
    one, other = decoder(), decoder()
    graphs = [graph_of(model) for model in (one, other)]
    assert functions_of(graphs[0]) == functions_of(graphs[1])
    logits = [graph(tf.constant(IDS)) for graph in graphs]
    assert np.abs(logits[0] - logits[1]).max() > 1e-3
    np.testing.assert_allclose(logits[1], next_logits(other), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"windows": (2, 3, 2)}, {"rotary_base": 10.0}, {"activation": "relu"}], ids=str
)
def test_other_structures_have_their_own(options):
    model = decoder(**options)
    graph = graph_of(model)
    names = functions_of(graph)
    assert len(set(names[:3])) == (2 if "windows" in options else 1)
    assert not {*names} & {*functions_of(graph_of(decoder()))}
    np.testing.assert_allclose(graph(tf.constant(IDS)), next_logits(model), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_block_with_a_low_rank_update_has_its_own():
    model = decoder()
    blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    query = blocks[1].self_attention.query
    query.enable_lora(2)
    query.lora_kernel_b.assign(np.ones(query.lora_kernel_b.shape))
    graph = graph_of(model)
    assert len(set(functions_of(graph)[:3])) == 2
    np.testing.assert_allclose(graph(tf.constant(IDS)), next_logits(model), rtol=1e-5, atol=1e-6)


def test_a_watched_block_shares_nothing():
    model = decoder()
    blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    watched = []
    with WATCHERS.use({blocks[1].self_attention: watched.append}):
        graph = graph_of(model)
    assert len(functions_of(graph)) == 2 * 2
    assert len(watched) == 2


def test_functions_keep_no_model():
    model = decoder()
    graph = graph_of(model)
    block = weakref.ref(model.layers[2])
    del model, graph
    gc.collect()
    assert block() is None


@pytest.mark.slow
def test_pipelines_answer_from_shared_blocks():
    """The last block of a tagger is as the others; of a classifier it computes one position."""
    encoder = bert(vocabulary_size=len(tiny.VOCABULARY), num_layers=3, num_heads=2, hidden_dim=8)
    tag = kt.pipelines.Tagger(kt.heads.tagger(encoder, 2), tiny.wordpiece(), ["O", "B-X"])
    classify = kt.pipelines.TextClassifier(
        kt.heads.classifier(encoder, 2), tiny.wordpiece(), ["a", "b"]
    )
    for pipeline, num_calls in ((tag, 3), (classify, 2)):
        graph = pipeline._graph.graph.as_graph_def()
        functions = graph.library.function
        (shared,) = [f.signature.name for f in functions if f.attr["_noinline"].b]
        nodes = [*graph.node, *(node for function in functions for node in function.node_def)]
        calls = [node for node in nodes if node.attr["f"].func.name == shared]
        assert len(calls) == num_calls
    probability = classify(["a good film"])[0].probabilities[0]
    for weight in encoder.weights:
        weight.assign(weight + 0.1)  # the graph reads the weights that there are
    assert abs(classify(["a good film"])[0].probabilities[0] - probability) > 1e-4


def test_graphs_with_gradients_share_nothing():
    model = decoder()
    with shared_calls():
        inference, training = (
            tf.function(
                lambda ids, training=training: model({"token_ids": ids}, training=training)
            ).get_concrete_function(tf.TensorSpec([None, None], tf.int32))
            for training in (False, True)
        )
    assert [len(functions_of(graph)) for graph in (inference, training)] == [3, 0]
