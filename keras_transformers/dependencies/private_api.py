"""Wraps every private name of other libraries that this package uses, one per function.

A name is private if it begins with an underscore, or if no public name leads to its module, such as
`keras.src` and `tensorflow.python`. Any release may remove it. setup.cfg limits the versions;
tests/dependencies/test_private_api.py fails for each name that disappears, and for each that
another file of the package or a recipe uses. All were tested with Keras 3.15.1, TensorFlow 2.21.0
and tensorflow-text 2.21.1. Unless an entry says otherwise, no public alternative was found.

Two kinds of names count as public: methods that a library documents for overriding, such as
`_create_resource`, and the protocol buffers in `tensorflow.core`, which define files.
"""

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
from keras import Variable
from keras.layers import Layer
from keras.optimizers import Optimizer

from keras_transformers.dependencies.untyped import Message, Tensor

_Clip = Callable[[list[Tensor]], list[Tensor]]

# --- Keras layers ----------------------------------------------------------------------------


class AfterBuild(keras.layers.Layer):
    """Calls `after_build` once the layer and the layers inside it have their weights."""

    def _post_build(self) -> None:
        super()._post_build()
        self.after_build()

    def after_build(self) -> None:
        """Does nothing; subclasses override it."""


def inner_layers(layer: Layer, *, recursive: bool = True) -> list[Layer]:
    """Returns the layers inside a layer, at any depth or directly inside."""
    return list(layer._flatten_layers(include_self=False, recursive=recursive))


def stored_kernel(dense: keras.layers.Dense) -> Variable:
    """Returns a dense layer's own matrix, without the low-rank update that `kernel` adds."""
    return dense._kernel


# --- Keras metrics ---------------------------------------------------------------------------


def lower_is_better(metric: keras.metrics.Metric) -> bool:
    """Returns whether Keras says that a lower value of a metric is better."""
    return getattr(metric, "_direction", None) == "down"


# --- Keras variables -------------------------------------------------------------------------


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Lets models be built without values for their variables, which takes no time or memory.

    `set_value` sets a variable's first value, and `give_values` sets those of all others. Until
    then the model must not be called.
    """
    from keras.src.backend.common import global_state

    with keras.StatelessScope() as scope:
        scope.initialize_variables = False
        yield
    # Keras would initialize them at the end of the next scope.
    global_state.set_global_attribute("uninitialized_variables", [])


def has_value(variable: Variable) -> bool:
    """Returns whether a variable has a value; see `without_values`."""
    return variable._value is not None


def set_value(variable: Variable, value: Tensor) -> None:
    """Assigns a value to a variable, even to one that has none yet."""
    if has_value(variable):
        variable.assign(value)
        return
    variable._initializer = lambda shape, dtype: keras.ops.convert_to_tensor(value, dtype)
    variable._deferred_initialize()


def give_values(model: keras.Model) -> None:
    """Initializes those variables of a model that have no values yet."""
    for variable in model.variables:
        if not has_value(variable):
            variable._deferred_initialize()


# --- Keras models ----------------------------------------------------------------------------


def own_strategy(model: keras.Model) -> Any:
    """Returns the tf.distribute strategy that a model was built in, or None.

    The public `model.distribute_strategy` falls back to the caller's strategy.
    """
    return model._distribute_strategy


def compile_loss(model: keras.Model) -> keras.losses.Loss:
    """Returns the loss object that `compile` made; a custom training step has to build it."""
    return model._compile_loss


def set_symbolic_build(model: keras.Model, build: Callable[..., None]) -> None:
    """Replaces the function with which `fit` builds metrics and optimizer, which uses a batch."""
    model._maybe_symbolic_build = build


def symbolic_build(model: keras.Model, data_batch: Any) -> None:
    """Builds a compiled model's metrics, losses and optimizer for data with these specs."""
    model._symbolic_build(data_batch=data_batch)


def replica_spec(spec: Any) -> Any:
    """Returns the TensorSpec of one replica's share of a distributed tensor; other specs as is."""
    return getattr(spec, "_value_specs", [spec])[0]


def seed_generators(model: keras.Model) -> list[keras.random.SeedGenerator]:
    """Returns the random generators of all layers, each once; Keras seeds all replicas the same."""
    generators = [g for layer in model._flatten_layers() for g in layer._seed_generators]
    return list({id(generator): generator for generator in generators}.values())


def set_initial_epoch(model: keras.Model, epoch: int | None) -> None:
    """Makes `fit` continue from an epoch that is only known after it starts; None undoes this."""
    model._initial_epoch = epoch


def first_outputs(layer: Layer) -> Sequence[Tensor]:
    """Returns the symbolic outputs of a layer's first call; layers may be called several times."""
    return layer._inbound_nodes[0].output_tensors


def inputs_of(layer: Layer) -> list[Layer]:
    """Returns the layers whose outputs a layer's first call uses, in order."""
    return [tensor._keras_history.operation for tensor in layer._inbound_nodes[0].input_tensors]


def calls(model: keras.Model) -> list[tuple[Layer, Sequence[Tensor], Sequence[Tensor]]]:
    """Returns (layer, input tensors, output tensors) of a functional model's calls, in order."""
    depths = sorted(model._nodes_by_depth.items(), reverse=True)
    nodes = [node for _, level in depths for node in level]
    return [(node.operation, node.input_tensors, node.output_tensors) for node in nodes]


def call_arguments(model: keras.Model) -> list[tuple[Layer, Sequence[Any], dict[str, Any]]]:
    """Returns (layer, arguments, keyword arguments) of a functional model's calls."""
    nodes = [node for level in model._nodes_by_depth.values() for node in level]
    return [(node.operation, node.arguments.args, node.arguments.kwargs) for node in nodes]


def reads_first_item(operation: Any) -> bool:
    """Returns whether an operation of a functional model is `tensor[:, 0]`."""
    from keras.src.ops.numpy import GetItem

    if not isinstance(operation, GetItem):
        return False
    keys = [node.arguments.args[1] for node in operation._inbound_nodes]
    # In a model that was saved, it is a list.
    return all(isinstance(key, tuple | list) and [*key] == [slice(None), 0] for key in keys)


def run_through_graph(
    model: keras.Model, inputs: Mapping[str, Tensor], operation: Callable[[Layer], Any]
) -> dict[str, Tensor]:
    """Calls `operation(layer)` instead of each layer of a functional model, in order."""
    return model._run_through_graph(inputs, operation)


# --- Keras optimizers ------------------------------------------------------------------------


def moments(optimizer: Optimizer, variable: Variable) -> tuple[Variable, Variable]:
    """Returns Adam's, AdamW's or Lamb's first and second moments of a variable's gradient."""
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def decays_weight(optimizer: Optimizer, variable: Variable) -> bool:
    """Returns whether the optimizer decays this variable; see `exclude_from_weight_decay`."""
    return optimizer._use_weight_decay(variable)


class NoSeparateWeightDecay:
    """Turns off Keras's weight decay before the step, for optimizers whose step includes it."""

    def _apply_weight_decay(self, variables: Sequence[Variable]) -> None:
        """Does nothing."""


def skip_gradient_sum(optimizer: Optimizer) -> None:
    """Prevents Keras from summing the gradients over the replicas a second time."""
    optimizer._all_reduce_sum_gradients = list


def skips_gradient_sum(optimizer: Optimizer) -> bool:
    """Returns whether `skip_gradient_sum` was called."""
    return optimizer._all_reduce_sum_gradients is list


def gradient_clipping(optimizer: Optimizer) -> _Clip:
    """Returns the function that clips the gradients, the last to see them before the step."""
    return optimizer._clip_gradients


def set_gradient_clipping(optimizer: Optimizer, clip: _Clip) -> None:
    """Replaces the function that clips the gradients."""
    optimizer._clip_gradients = clip


# --- Keras callbacks -------------------------------------------------------------------------


def has_averages(swap: keras.callbacks.SwapEMAWeights) -> bool:
    """Returns whether a SwapEMAWeights callback has put the averages into the model."""
    return swap._ema_weights_in_model


def set_has_averages(swap: keras.callbacks.SwapEMAWeights, value: bool) -> None:
    """Sets in a SwapEMAWeights callback whether a restored model has the averages."""
    swap._ema_weights_in_model = value


def profiled_batches(tensorboard: keras.callbacks.TensorBoard) -> tuple[int, int]:
    """Returns the first and last batch a TensorBoard callback profiles, counted from its start."""
    return tensorboard._start_batch, tensorboard._stop_batch


def set_first_batch(
    tensorboard: keras.callbacks.TensorBoard, batch: int, profiled: tuple[int, int]
) -> None:
    """Makes a TensorBoard callback count from `batch`; Keras starts each `fit` at 0."""
    tensorboard._global_train_batch = batch
    tensorboard._start_batch, tensorboard._stop_batch = (batch + offset for offset in profiled)


# --- TensorFlow ------------------------------------------------------------------------------


def int8_product(
    rows: Tensor, matrix: Tensor, largest: Tensor, *, transpose: bool = False
) -> Tensor:
    """Computes `(rows / 127) @ (matrix * largest / 127)` in integers; only in graphs.

    This uses oneDNN's kernel for x86, which rearranges the matrix in its first call and keeps it.
    Without VNNI, the sum is exact only if no two numbers of a column in features 2k and 2k + 1 add
    up to more than 128 or less than -128: oneDNN adds 128 to the rows, and pairs in 16 bits.

    Args:
        rows: int8 (rows, features).
        matrix: int8 (features, units), or (units, features) with `transpose`. It must not change.
        largest: float32 (units,), a variable or constant: the kernel caches its rearranged matrix
            by the address of this tensor, and rearranges again for every new address.
        transpose: whether to multiply by the transposed matrix.

    Returns:
        Float32 (rows, units).
    """
    import tensorflow as tf

    largest = tf.convert_to_tensor(largest)
    bias, one = tf.zeros(largest.shape), tf.constant(1.0)  # the kernel requires a bias
    on_device = [tf.bitcast(rows, tf.qint8), tf.bitcast(matrix, tf.qint8), bias]
    on_host = [one, one, largest, largest]  # lower and upper ends of ranges: the kernel uses |x|
    value = tf.compat.v1.AttrValue

    def types(tensors: Sequence[Tensor]) -> Message:
        return value(list=value.ListValue(type=[t.dtype.as_datatype_enum for t in tensors]))

    operation = tf.compat.v1.get_default_graph().create_op(
        "_QuantizedMatMul",
        [*on_device, *on_host],
        [tf.float32],
        name="int8_product",
        attrs={
            "Tdevice_inputs": types(on_device),
            "Thost_inputs": types(on_host),
            "Tdevice_outputs": types([bias]),
            "Thost_outputs": types([]),
            "T1": value(type=tf.qint8.as_datatype_enum),
            "T2": value(type=tf.qint8.as_datatype_enum),
            "transpose_b": value(b=transpose),
            "fused_ops": value(list=value.ListValue(s=[b"BiasAdd", b"Dequantize"])),
        },
    )
    product = operation.outputs[0]
    product.set_shape((rows.shape[0], largest.shape[0]))
    return product


def leave_out_of_checkpoints(variable: Any) -> None:
    """Lets a SavedModel have a `tf.Variable` without its value; something else must set it."""
    export = variable._export_to_saved_model_graph

    def exported(object_map: Any, **options: Any) -> list[Any]:
        objects = export(object_map=object_map, **options)
        leave_out_of_checkpoints(object_map[variable])
        return objects

    variable._export_to_saved_model_graph = exported
    variable._serialize_to_tensors = dict


def op_definition(op: str) -> Message | None:
    """Returns the OpDef of an op that the installed TensorFlow has registered, or None.

    `tf.raw_ops` has the public ops as functions, but without the default values of attributes.
    """
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op)


def with_constants(function: Any) -> Any:
    """Returns a concrete function whose variables have become constants with their values."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    return convert_variables_to_constants_v2(function)


# --- tensorflow-text -------------------------------------------------------------------------


def wordpiece_model(
    library: Any, tokens: Sequence[str], *, splits: bool, longest_word: int, unknown_token: str
) -> bytes:
    """Builds the `model_buffer` of a FastWordpieceTokenizer.

    The class builds the same from a vocabulary, but turns it into a list of numbers on the way.

    Args:
        library: tensorflow_text.
        tokens: the vocabulary, by id; tokens that continue a word start with "##".
        splits: whether texts are split into words first.
        longest_word: in bytes; longer words are unknown.
        unknown_token: the unknown words' token.

    Raises:
        RuntimeError: no words, a token of more than 256 bytes, and so on.
    """
    builder = importlib.import_module(
        f"{library.__name__}.core.pybinds.pywrap_fast_wordpiece_tokenizer_model_builder"
    )
    model: bytes = builder.build_fast_wordpiece_model(
        tokens, longest_word, "##", unknown_token, not splits, False
    )
    return model


def name_sentencepiece_model(tokenizer: Any, model: bytes, name: str) -> None:
    """Makes a SentencepieceTokenizer's model outlive the kernel that read it.

    In tensorflow-text, the kernel of an op owns the model ("TODO(b/318839908): switch to using a
    ref-counted resource instead of this kernel-owned resource", sentencepiece_tokenizer.py).
    `tf.random.set_seed`, and so `keras.utils.set_random_seed`, clears all kernels and breaks the
    tokenizer ("Resource ... does not exist"). The process owns a model with a name, and tokenizers
    with the same name share it.
    """
    import tensorflow as tf

    ops = sys.modules[type(tokenizer).__module__].gen_sentencepiece_tokenizer
    resource = tokenizer._model_resource
    resource._create_resource = lambda: ops.sentencepiece_op(model=model, shared_name=name)
    resource._resource_handle = None  # drops the handle of the unnamed model
    with tf.init_scope():
        _ = resource.resource_handle  # creates the named one
