"""Errors of graphs without the names and frames around their sentence."""

import re

import pytest
import tensorflow as tf

from keras_transformers.dependencies.graph_errors import sentence
from keras_transformers.files import one_line

NAMES = re.compile(r"\{\{|\[\[|\[Op:|PartitionedCall|__inference|_wrapper_|/job:|\.py\"|\t")

# Of TensorFlow 1.15 to 2.21, as model servers and sessions say them.
MESSAGES = [
    (
        "assertion failed: [must not be negative] [Condition x >= 0 did not hold element-wise:x "
        "(x:0) = ] [-1]\n\t [[{{node assert_non_negative/assert_less_equal/Assert/Assert}}]]",
        "must not be negative",
    ),
    (
        "indices[0] = 9 is not in [0, 2)\n\t [[{{node GatherV2}} = GatherV2[Taxis=DT_INT32, "
        '_device="/job:localhost/replica:0/task:0/device:CPU:0"](Const, _arg_x_0_0, axis)]]',
        "indices[0] = 9 is not in [0, 2)",
    ),
    (
        "2 root error(s) found.\n  (0) Invalid argument: assertion failed: [too long:] [600]\n\t "
        "[[{{node model/Assert}}]]\n\t [[StatefulPartitionedCall/model/out_1/_7]]\n  (1) Invalid "
        "argument: assertion failed: [too long:] [600]\n\t [[{{node model/Assert}}]]\n0 "
        "successful operations.\n0 derived errors ignored.",
        "too long: 600",
    ),
    (
        "Error while reading resource variable dense/bias from Container: localhost.\n\t "
        "[[{{node dense/BiasAdd/ReadVariableOp}}]]\n\t [[StatefulPartitionedCall]]",
        "Error while reading resource variable dense/bias from Container: localhost.",
    ),
    (
        "Incompatible shapes: [2] vs. [3]\n\t [[node add (defined at a.py:3) ]]\n\nErrors may have "
        "originated from an input operation.\nInput Source operations connected to node add:\n x "
        "(defined at a.py:2)\n\nFunction call stack:\nsignature_wrapper\n",
        "Incompatible shapes: [2] vs. [3]",
    ),
    (
        "Graph execution error:\n\nInput to reshape is a tensor with 2 values, but the requested "
        "shape has 7\n\nStack trace for op definition: \ndummy_file_name:10:dummy_function_name\n\n"
        "\t [[{{node Reshape}}]]\n\ttf2xla conversion failed while converting __inference_f_297[]. "
        "Run with TF_DUMP_GRAPH_PREFIX=/path/to/dump/dir and --vmodule=xla_compiler=2 to obtain a "
        "dump of the compiled functions.\n\t [[PartitionedCall_12/PartitionedCall]]",
        "Input to reshape is a tensor with 2 values, but the requested shape has 7",
    ),
    (
        "OOM when allocating tensor with shape[9,9] and type float on /job:localhost/replica:0/"
        "task:0/device:CPU:0 by allocator mklcpu\n\t [[{{function_node __inference_f_2}}{{node "
        "zeros}}]]\nHint: If you want to see a list of allocated tensors when OOM happens, add "
        "report_tensor_allocations_upon_oom to RunOptions for current allocation info.\n",
        "OOM when allocating tensor with shape[9,9] and type float",
    ),
    ("corrupted record at 0 [Op:IteratorGetNext] name: ", "corrupted record at 0"),
    ("{{node a/b}} no such table\n\t [[{{node a/b", "no such table"),
    (
        "Dimensions must be equal, but are 2 and 3 for '{{node MatMul}} = MatMul[T=DT_FLOAT, "
        "transpose_a=false](a, b)' with input shapes: [1,2], [3,1].",
        "Dimensions must be equal, but are 2 and 3 with input shapes: [1,2], [3,1].",
    ),
    # No names of a graph, but of what a client sent.
    ("text [[MASK]] has\n[[1, 2], [3]] in it", "text [[MASK]] has\n[[1, 2], [3]] in it"),
]


@pytest.mark.parametrize(("message", "said"), MESSAGES)
def test_only_the_sentence_remains(message, said):
    assert sentence(message) == said
    assert one_line(RuntimeError(message)) == said.replace("\n", "\\n")


@tf.function(autograph=False)
def _checked(x):
    with tf.control_dependencies([tf.debugging.assert_positive(x, "x is not positive")]):
        return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y), (0, x))


@tf.function(jit_compile=True, autograph=False, input_signature=[tf.TensorSpec([None])])
def _compiled(x):
    return tf.reshape(x, [7])


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: _checked(tf.constant([-1.0])), "x is not positive"),
        (lambda: _compiled(tf.constant([1.0, 2.0])), "requested shape has 7"),
        (lambda: tf.function(tf.strings.to_number)(tf.constant("ab")), "string: ab"),
        (lambda: tf.zeros([100_000] * 3), "type float"),
    ],
)
def test_what_this_tensorflow_says(function, said):
    with pytest.raises(tf.errors.OpError) as caught:
        function()
    found = sentence(caught.value.message)
    assert said in found
    assert not NAMES.search(found)
