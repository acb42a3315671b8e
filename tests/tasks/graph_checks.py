"""An export's graphs without the export, and checks of those that one stores."""

import functools

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

# These only pass strings between callers and functions.
_PLUMBING = {"Placeholder", "Identity", "StatefulPartitionedCall", "PartitionedCall"}


def signatures_in_graphs(pipeline):
    """Returns a function that runs a signature as its export does, but writes and loads nothing.

    It takes the signature's name and its tensors and returns arrays. A graph is traced when it is
    first asked for; `serving_default` is the one of the pipeline's own calls.
    """
    signatures = pipeline.signatures()

    @functools.cache
    def graph(name):
        if name == "serving_default":
            return pipeline._graph
        specs = {
            key: tf.TensorSpec(spec.shape, spec.dtype, name=key)
            for key, spec in signatures[name].inputs.items()
        }
        return tf.function(signatures[name].function, autograph=False).get_concrete_function(
            **specs
        )

    def run(name="serving_default", **inputs):
        return {key: value.numpy() for key, value in graph(name)(**inputs).items()}

    return run


def meta_graph(folder):
    """Returns the export's only meta graph."""
    parsed = saved_model_pb2.SavedModel()
    parsed.ParseFromString((folder / "saved_model.pb").read_bytes())
    (found,) = parsed.meta_graphs
    return found


def nodes(folder):
    """Yields all nodes of the export, including its functions'."""
    graph = meta_graph(folder).graph_def
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def only_ops_that_stock_tf_serving_has(folder):
    """Checks that the ops are TensorFlow's and the tokenizer's two."""
    found = {node.op for node in nodes(folder)}
    core = {op for op in found if not op.startswith(("Fast", "TFText", "Sentencepiece"))}
    assert found - core == {"FastBertNormalize", "FastWordpieceTokenizeWithOffsets"}
    assert not {op for op in core if "PyFunc" in op or "Lookup" in op or ">" in op}


def string_nodes(folder):
    """Yields the nodes that process strings."""
    for node in nodes(folder):
        attributes = node.attr.values()
        types = {a.type for a in attributes} | {t for a in attributes for t in a.list.type}
        if types_pb2.DT_STRING in types and node.op not in _PLUMBING:
            yield node


def strings_are_pinned_to_the_cpu(folder):
    """Checks that nodes that process strings say where they run."""
    found = list(string_nodes(folder))
    assert len(found) > 5
    for node in found:
        assert "device:CPU" in node.device, node.name
