"""Loads a SavedModel into a session and runs its signatures.

It uses the V1 session loader, as TF Serving does, so models that fail there fail here, including
when variables are restored. Closing a session frees its memory, which `tf.saved_model.load` does
not do reliably.
"""

import contextlib
import ctypes
import itertools
import os
import queue
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_transformers.dependencies import graph_errors
from keras_transformers.dependencies.text_library import register_ops
from keras_transformers.dependencies.untyped import Message
from keras_transformers.saved_model.description import meta_graph, shape_of
from keras_transformers.serving.protocol.errors import Code, RequestError, invalid
from keras_transformers.serving.protocol.signatures import Arrays, SignatureInfo, TensorInfo
from keras_transformers.serving.server.cancellation import Cancellation
from keras_transformers.tasks.answers import OPTIONS_SIGNATURE, TOKENIZE_SIGNATURE

_LONGEST_MESSAGE = 2000
# Operations that may run others without end: TensorFlow 2's loops, and the first of TensorFlow 1's.
_LOOPS = {"While", "StatelessWhile", "Enter", "RefEnter"}
# Ending a run must not wait for a thread.
_IN_THIS_THREAD = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)


class SavedModel:
    """A SavedModel in its own session.

    Args:
        path: the folder that holds saved_model.pb.
        max_runs: how many runs may be in progress; further ones wait.

    Raises:
        RequestError: the model cannot be loaded.

    Attributes:
        path: the folder.
        signatures: name -> signature.
        steps: the same for those with which the server writes texts; no request may name them.
        definitions: name -> SignatureDef from the file, including the initializer's.
        answered: the signatures that have answered; the first run of each also optimizes its graph.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_runs: int = 2) -> None:
        self.path = Path(path)
        self.answered: set[str] = set()
        register_ops()
        graph = tf.Graph()
        # Allocate GPU memory as needed; run operations without a GPU kernel on the CPU.
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        config.gpu_options.allow_growth = True
        # TensorFlow's threads for all sessions are as many as the cores, and a loop holds one until
        # it ends: with a loop in each, no run of any model proceeds, and none can be ended. So each
        # session has its own: a run holds one or two, and one is left.
        config.session_inter_op_thread_pool.add(num_threads=2 * max_runs + 1)
        config.experimental.disable_thread_spinning = True  # by so many threads, it would cost time
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        try:
            with graph.as_default():
                loaded = tf.compat.v1.saved_model.load(
                    self._session, [tf.saved_model.SERVING], str(self.path)
                )
            # A model with options of decoding costs as much as it writes.
            reads_tokens = (
                TOKENIZE_SIGNATURE in loaded.signature_def
                and OPTIONS_SIGNATURE not in loaded.signature_def
            )
            servable = {
                name: _signature(name, definition, reads_tokens=reads_tokens)
                for name, definition in loaded.signature_def.items()
                if _is_servable(definition)
            }
            self.steps = {name: s for name, s in servable.items() if name.startswith("__")}
            self.signatures = {n: s for n, s in servable.items() if n not in self.steps}
            self.definitions: dict[str, Any] = {
                name: definition
                for name, definition in loaded.signature_def.items()
                if name not in self.steps
            }
            self._tensors = {
                name: (_tensors(graph, signature.inputs), _tensors(graph, signature.outputs))
                for name, signature in servable.items()
            }
            graph_def = meta_graph(self.path).graph_def
            with graph.as_default(), tf.name_scope("runs"):
                self._ends = _Ends(self._session, max_runs)
                self._controls = {
                    name: self._ends.controls(list(self._tensors[name][1].values()))
                    for name, signature in self.signatures.items()
                    if _has_loop(graph_def, signature.outputs.values())
                }
            graph.finalize()
            if self._controls:
                self._ends.prepare()
        except Exception as error:  # after any error of the runtime, the version cannot be served
            self._session.close()
            if isinstance(error, tf.errors.OpError):
                raise from_tensorflow(error) from error
            raise RequestError(
                Code.FAILED_PRECONDITION,
                f"{self.path}: {type(error).__name__}: {graph_errors.sentence(str(error))}",
            ) from error

    def run(
        self,
        signature: SignatureInfo,
        inputs: Arrays,
        *,
        timeout_s: float,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Any]:
        """Runs a signature once.

        Args:
            signature: one of `signatures`.
            inputs: name -> array.
            timeout_s: seconds until the runtime gives up.
            cancellation: keeps the run from starting, or ends it between two operations of its
                graph if the signature has a loop.

        Returns:
            Output name -> array.

        Raises:
            RequestError: the graph failed, or the run was cancelled.
        """
        outputs = self._run(signature, inputs, timeout_s, cancellation)
        self.answered.add(signature.name)
        return outputs

    def _run(
        self,
        signature: SignatureInfo,
        inputs: Arrays,
        timeout_s: float,
        cancellation: Cancellation | None,
    ) -> dict[str, Any]:
        cancellation = cancellation or Cancellation()
        options = tf.compat.v1.RunOptions(timeout_in_ms=max(1, int(timeout_s * 1000)))
        feeds, fetches = self._tensors[signature.name]
        fed = {feeds[name]: array for name, array in inputs.items()}
        try:
            if signature.name not in self._controls:  # nothing that could take long
                if not cancellation.is_cancelled:
                    return self._session.run(fetches, fed, options=options)
            else:
                with self._ends.run() as run, cancellation.ended_by(run.end):
                    controlled = (fetches, self._controls[signature.name])
                    try:
                        return self._session.run(controlled, fed | run.feeds, options=options)[0]
                    except tf.errors.CancelledError:
                        if cancellation.is_cancelled:
                            raise
                        # A function that fails ends the waiting operation too, whose error may
                        # arrive first. Run alone, the function says what is wrong.
                        return self._session.run(fetches, fed, options=options)
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            if not cancellation.is_cancelled:
                raise _refusal(error) from error
        raise RequestError(Code.CANCELLED, "the run was cancelled")

    def step(
        self, signature: SignatureInfo, inputs: Arrays, outputs: Container[str] | None = None
    ) -> dict[str, Any]:
        """Runs one of `steps`, which takes too little time to end it.

        Args:
            signature: one of `steps`.
            inputs: name -> array.
            outputs: the outputs to compute; all by default.

        Raises:
            RequestError: the graph failed.
        """
        feeds, fetches = self._tensors[signature.name]
        if outputs is not None:
            fetches = {name: tensor for name, tensor in fetches.items() if name in outputs}
        try:
            answer = self._session.run(fetches, {feeds[n]: array for n, array in inputs.items()})
            self.answered.add(signature.name)
            return answer
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            raise _refusal(error) from error

    def close(self) -> None:
        """Frees the graph and its variables; it cannot run afterwards."""
        self._session.close()
        self._tensors = {}
        self.definitions = {}


class _Ends:
    """Ends runs of a session, for which TensorFlow has no call.

    In each run, one operation waits for a value from a queue. The run's last operation puts True
    there, and `end` False, which makes an assertion fail; TensorFlow then ends the whole run. An
    operation that waits for a queue holds no thread.

    Args:
        session: the session, whose graph gets the operations.
        max_runs: how many runs may be in progress, each with its own queue.
    """

    def __init__(self, session: Any, max_runs: int) -> None:
        self._session = session
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        queues = []
        for place in range(max_runs):
            self._free.put(place)
            queues.append(tf.queue.FIFOQueue(-1, [tf.bool], [[]], shared_name=f"run_{place}"))
        self._place = tf.compat.v1.placeholder(tf.int32, [], name="place_of_run")
        self._queue = tf.queue.QueueBase.from_list(self._place, queues)
        self._end = self._queue.enqueue(False)
        self._empty = self._queue.dequeue_many(self._queue.size())
        self._check = tf.raw_ops.Assert(
            condition=self._queue.dequeue(), data=[tf.constant("the run was ended")]
        )

    def controls(self, outputs: Sequence[Any]) -> list[Any]:
        """Returns what a run must fetch besides its outputs."""
        # To depend on a function call is not enough: TensorFlow then waits only for the side
        # effects of the function. So this operation takes the outputs themselves.
        computed = tf.raw_ops.Assert(condition=tf.constant(True), data=outputs)
        with tf.control_dependencies([computed]):
            return [self._check, self._queue.enqueue(True)]

    def prepare(self) -> None:
        """Ends no run, because the first call of an operation takes longer."""
        with self.run() as run:
            run.end()

    @contextlib.contextmanager
    def run(self) -> "Iterator[_Run]":
        """Yields a run, once one of the queues is free."""
        place = self._free.get()
        feeds, is_empty, ended = {self._place: place}, False, threading.Event()

        def call(operation: Any) -> None:
            self._session.run(operation, feeds, options=_IN_THIS_THREAD)

        def end() -> None:
            ended.set()
            call(self._end)

        try:
            yield _Run(feeds, end)
            is_empty = not ended.is_set()  # the run has taken what it put there
        finally:
            if not is_empty:
                call(self._empty)
            self._free.put(place)


@dataclass(frozen=True)
class _Run:
    """One run of a session: what it must be fed, and the function that ends it."""

    feeds: dict[Any, int]
    end: Callable[[], None]


def return_freed_memory() -> None:
    """Returns freed memory to the operating system, if the C library is glibc.

    glibc keeps it for each thread that allocated it. Tensors of varying sizes leave gaps there, so
    the process would hold much more than it uses.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def from_tensorflow(error: "tf.errors.OpError") -> RequestError:
    """Returns the runtime's error, with only the sentence of its message."""
    message = graph_errors.sentence(error.message or "") or type(error).__name__
    return RequestError(Code(error.error_code), message[:_LONGEST_MESSAGE])


def _refusal(error: "tf.errors.OpError | UnicodeDecodeError") -> RequestError:
    if isinstance(error, UnicodeDecodeError):
        # TensorFlow's Python cannot decode the graph's error, which quotes its input.
        return invalid("the graph rejected the input, with a message that is not UTF-8")
    return from_tensorflow(error)


def _is_servable(definition: Message) -> bool:
    """Returns False for the initializer's signature and for those with sparse tensors."""
    infos = (*definition.inputs.values(), *definition.outputs.values())
    return bool(definition.inputs and definition.outputs) and all(info.name for info in infos)


def _signature(name: str, definition: Message, *, reads_tokens: bool) -> SignatureInfo:
    return SignatureInfo(
        name=name,
        method_name=definition.method_name,
        # Sorted, because the order of a protocol buffer's map differs from run to run.
        inputs={key: _info(definition.inputs[key]) for key in sorted(definition.inputs)},
        outputs={key: _info(definition.outputs[key]) for key in sorted(definition.outputs)},
        reads_tokens=reads_tokens,
    )


def _info(info: Message) -> TensorInfo:
    return TensorInfo(info.name, tf.as_dtype(info.dtype), shape_of(info))


def _tensors(graph: Any, infos: Mapping[str, TensorInfo]) -> dict[str, Any]:
    return {name: graph.get_tensor_by_name(info.tensor) for name, info in infos.items()}


def _has_loop(graph: Message, outputs: Iterable[TensorInfo]) -> bool:
    """Returns whether outputs depend on a loop in a GraphDef, or in a function that it calls."""
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function.node_def for function in graph.library.function}

    def called_by(nodes: Iterable[Any]) -> Iterator[str]:
        for node in nodes:
            values = node.attr.values()
            names = [f.name for value in values for f in (value.func, *value.list.func)]
            yield from functions.keys() & {node.op, *names}

    used = _reached(
        (info.tensor.partition(":")[0] for info in outputs),
        lambda name: (place.removeprefix("^").partition(":")[0] for place in nodes[name].input),
    )
    called = _reached(
        called_by(nodes[name] for name in used), lambda name: called_by(functions[name])
    )
    bodies = (functions[name] for name in called)
    reached = itertools.chain((nodes[name] for name in used), *bodies)
    return any(node.op in _LOOPS for node in reached)


def _reached(starts: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
    """Returns all names that can be reached from some of them."""
    reached: set[str] = set()
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(following(name))
    return reached
