"""A client for TF Serving and the local server, over REST or gRPC."""

import contextlib
import json
import os
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Literal, Self, TypeVar, overload

import numpy as np

from keras_transformers.files.errors import short_repr
from keras_transformers.files.surrogates import as_utf8
from keras_transformers.serving.client.target import Target, connect
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.client.transport import (
    Call,
    Features,
    SignatureInfo,
    Transport,
    VersionStatus,
    request_error,
)
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.signatures import ModelSpec
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.generation.answer import Generation, Selection
from keras_transformers.tasks.generation.choice_lists import choice_columns, selections
from keras_transformers.tasks.generation.conversations import (
    OLD_OPTIONS,
    as_conversations,
    conversation_columns,
    decoding_options,
)
from keras_transformers.tasks.generation.tools import template_of_export, with_calls
from keras_transformers.tasks.texts import (
    call_columns,
    named_columns,
    string_column,
    text_inputs,
)

__all__ = ["Client"]

_RETRIED = (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED)
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0

_T = TypeVar("_T")


class Client:
    """Sends requests to a model server. Threads may share a client.

    Args:
        target: "http://host:port" for REST, "host:port" for gRPC; "https://host:port" and
            "grpcs://host:port" for the same with TLS. "kserve+http://host:port", and likewise
            kserve+https, kserve+grpc and kserve+grpcs, for servers that speak the Open Inference
            Protocol (KServe v2); they have no `classify` and no `regress`.
        timeout_s: seconds for each request, including its retries.
        max_attempts: how many times to try a request. Only requests that the server did not accept
            (UNAVAILABLE, RESOURCE_EXHAUSTED) are retried, after growing pauses.
        batch_size: maximum rows that `ask` and `rows` put into one request.
        root_certificates: a PEM file of the certificate authorities to trust; the system's by
            default.
        client_certificate: a PEM file of the certificate to show to a server that demands one.
        client_key: a PEM file of its private key, without a password.
        api_key: the key to show to a server that demands one.

    Raises:
        ValueError: the target is malformed, a number is not positive, there are certificates for
            http://, or a certificate without its key.
        FileNotFoundError: a PEM file does not exist.
        OSError: a file is not PEM, or the key is not the certificate's.

    Example:
        >>> from keras_transformers.serving import Client
        >>> with Client("http://127.0.0.1:8501") as client:  # doctest: +SKIP
        ...     client.ask("Ein Mann fährt Rad .", model="translate_de_en")
        Translation(text='A man is riding a bike.', score=-3.67)
    """

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float = 30.0,
        max_attempts: int = 5,
        batch_size: int = 32,
        root_certificates: str | os.PathLike[str] | None = None,
        client_certificate: str | os.PathLike[str] | None = None,
        client_key: str | os.PathLike[str] | None = None,
        api_key: str | None = None,
    ) -> None:
        if timeout_s <= 0 or max_attempts < 1 or batch_size < 1:
            raise ValueError(
                f"timeout_s {timeout_s}, max_attempts {max_attempts}, batch_size {batch_size}: "
                "expected positive numbers"
            )
        files = (root_certificates, client_certificate, client_key)
        tls = ClientTls(*(None if file is None else Path(file) for file in files))
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts
        self._batch_size = batch_size
        self._transport: Transport = connect(Target.parse(target), tls, api_key)
        self._signatures: dict[ModelSpec, Mapping[str, SignatureInfo]] = {}

    def ask(
        self,
        texts: Any,
        texts_b: Any = None,
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        signature_name: str = "serving_default",
    ) -> Any:
        """Returns a model's answer to one text or many, as a call of the pipeline does.

        Args:
            texts: a text, prompt or question (str or bytes), or a sequence of those.
            texts_b: the second text of the pair, the context of the question, or the list of
                choices for the text; or a sequence with one for each text.
            model: the model's name.
            version: the version's number; by default the label's version, or else the latest.
            label: the version's label.
            signature_name: the signature to run.

        Returns:
            For one text a result, for a sequence a list of results: of the type in
            `pipelines.results` for the task in the model's export; dicts for other models and
            signatures.

        Raises:
            RequestError: the server refused the request or failed.
            ValueError: the model does not take these texts, one is not a string or not Unicode
                text, or an argument is a table, whose columns are to be passed.
        """
        spec = ModelSpec(model, version, label)
        rows, one = self._rows(spec, signature_name, texts, texts_b)
        answer = self._answer(spec, signature_name)
        results = [reading.typed(row, answer) for row in rows]
        return results[0] if one else results

    def rows(
        self,
        texts: Any,
        texts_b: Any = None,
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        signature_name: str = "serving_default",
    ) -> list[dict[str, Any]]:
        """Asks like `ask`, but returns dicts, in a list: output name -> str, number or list."""
        rows, _ = self._rows(ModelSpec(model, version, label), signature_name, texts, texts_b)
        return rows

    @overload
    def chat(
        self,
        messages: Sequence[Any],
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        tools: Sequence[Any] | None = None,
        stream: Literal[True],
        **options: Any,
    ) -> Generator[str, None, Any]: ...

    @overload
    def chat(
        self,
        messages: Sequence[Any],
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        tools: Sequence[Any] | None = None,
        stream: Literal[False] = False,
        **options: Any,
    ) -> Any: ...

    def chat(
        self,
        messages: Sequence[Any],
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        tools: Sequence[Any] | None = None,
        stream: bool = False,
        **options: Any,
    ) -> Any:
        """Returns a model's answer to one conversation or several.

        Args:
            messages: a sequence of {"role": ..., "content": ...}, ending with a message from the
                user or a tool; or a sequence of such sequences. See
                `pipelines.TextGenerator.chat`.
            model: see `ask`.
            version: see `ask`.
            label: see `ask`.
            tools: what the model may call; see `pipelines.TextGenerator.chat`.
            stream: whether to return the answer to one conversation piece by piece; see `stream`.
            **options: max_length (of new tokens), temperature, top_k, top_p, seed,
                repetition_penalty, and `stop`, one or several strings that end an answer; each has
                one value for all conversations. The export's own are the defaults. `temperature`
                or `top_p` without `top_k` makes an export that is greedy sample.

        Returns:
            A `results.Generation` for one conversation, or a `results.Reply` if `tools` is given; a
            list for several.

        Raises:
            RequestError: the server refused the request or failed.
            ValueError: a message, a tool or an option is malformed, or the model does not chat or
                has no tools.
        """
        spec = ModelSpec(model, version, label)
        conversations, one = as_conversations(messages)
        if stream and not one and len(conversations) != 1:
            raise ValueError(
                f"{len(conversations)} conversations: stream=True answers one; leave it out"
            )
        if not conversations:
            return []
        roles, texts = conversation_columns(
            conversations, tools or (), lambda: template_of_export(model, self._template_name(spec))
        )
        inputs: dict[str, Any] = {"roles": roles, "texts": texts}
        name = "chat"
        if options:
            name = "chat_complete"
            inputs |= self._option_columns(spec, name, options, len(roles))
        if stream:
            pieces = self._pieces(spec, name, inputs)
            return pieces if tools is None else self._with_calls(spec, pieces)
        outputs = self._predict(spec, name, inputs)
        answer = self._answer(spec, name)
        rows = [reading.typed(row, answer) for row in reading.rows(outputs, [], answer)]
        if tools is not None:
            rows = [self._reply(spec, row) for row in rows]
        return rows[0] if one else rows

    def stream(
        self,
        prompt: str | bytes,
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        **options: Any,
    ) -> Generator[str, None, Any]:
        """Continues a prompt and yields the text piece by piece, as the model writes it.

        Joined, the pieces are the text of a plain answer. The local server sends them over REST;
        TensorFlow Serving, and any server over gRPC, sends the whole text as one piece. A generator
        that is closed, or a loop that is left, ends the work on the server.

        Args:
            prompt: one text.
            model: see `ask`.
            version: see `ask`.
            label: see `ask`.
            **options: see `chat`.

        Yields:
            The pieces, none of them empty.

        Returns:
            The `results.Generation`: the value of `yield from`, or of `StopIteration`.

        Raises:
            RequestError: the server refused the request or failed, or the text was not complete
                after the client's `timeout_s`.
            ValueError: an option is malformed, or the model does not continue prompts.

        Example:
            for piece in client.stream("The old man and", model="gpt2", max_length=100):
                print(piece, end="", flush=True)
        """
        spec = ModelSpec(model, version, label)
        name = "complete" if options else "serving_default"
        inputs: dict[str, Any] = {"prompt": [prompt]}
        if options:
            inputs |= self._option_columns(spec, name, options, 1)
        signature = self._signature(spec, name)
        if inputs.keys() != signature.inputs.keys():
            raise ValueError(
                f"signature {name!r} of {model} takes {', '.join(signature.inputs)}: it does not "
                "continue prompts; use `Client.ask`"
            )
        return self._pieces(spec, name, inputs)

    def choose(
        self,
        prompt: str | bytes | Sequence[str | bytes],
        choices: Sequence[Any],
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
    ) -> Any:
        """Returns which of some texts a model would write after a prompt, and how probably.

        Args:
            prompt: one text, or a sequence of them.
            choices: strings, none of them empty or there twice; or for several prompts also a
                sequence of strings for each. See `pipelines.TextGenerator.choose`.
            model: see `ask`.
            version: see `ask`.
            label: see `ask`.

        Returns:
            A `results.Selection` for one prompt; a list for several.

        Raises:
            RequestError: the server refused the request or failed.
            ValueError: the choices are malformed, or the model does not choose.
        """
        one = isinstance(prompt, str | bytes)
        columns = {"prompt": string_column("prompt", [prompt] if one else prompt)}
        spec = ModelSpec(model, version, label)
        rows = self._choose(columns, choices, spec, signature_name="choose")
        return rows[0] if one else rows

    def choose_chat(
        self,
        messages: Sequence[Any],
        choices: Sequence[Any],
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        tools: Sequence[Any] | None = None,
    ) -> Any:
        """Returns which of some answers a model would give to a conversation; see `choose`.

        Args:
            messages: see `chat`.
            choices: see `choose`.
            model: see `ask`.
            version: see `ask`.
            label: see `ask`.
            tools: see `chat`.

        Returns:
            A `results.Selection` for one conversation; a list for several.

        Raises:
            RequestError: the server refused the request or failed.
            ValueError: a message or the choices are malformed, or the model does not choose.
        """
        spec = ModelSpec(model, version, label)
        conversations, one = as_conversations(messages)
        roles, texts = conversation_columns(
            conversations, tools or (), lambda: template_of_export(model, self._template_name(spec))
        )
        columns = {"roles": _strings("roles", roles), "texts": _strings("texts", texts)}
        rows = self._choose(columns, choices, spec, signature_name="chat_choose")
        return rows[0] if one else rows

    def predict(
        self,
        inputs: Mapping[str, Any],
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        signature_name: str = "serving_default",
    ) -> dict[str, np.ndarray]:
        """Sends one Predict request.

        Args:
            inputs: name -> array, or nested lists of numbers, bool, str or bytes.
            model: see `ask`.
            version: see `ask`.
            label: see `ask`.
            signature_name: see `ask`.

        Returns:
            Output name -> array; strings are bytes in arrays of dtype object.

        Raises:
            RequestError: the server refused the request or failed.
            ValueError: an input cannot become an array of the signature's dtype.
        """
        return self._predict(ModelSpec(model, version, label), signature_name, inputs)

    def classify(
        self,
        examples: Sequence[Features],
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        signature_name: str = "classify",
    ) -> list[list[tuple[str, float]]]:
        """Sends one Classify request; returns each example's (label, score) for every class.

        Args:
            examples: feature name -> str, bytes, int, float, or a list of one of these.
            model: see `ask`.
            version: see `ask`.
            label: see `ask`.
            signature_name: see `ask`.

        Raises:
            RequestError: the server refused the request or failed.
        """
        spec = ModelSpec(model, version, label)
        return self._retrying(
            lambda s: self._transport.classify(Call(spec, signature_name, s), examples)
        )

    def regress(
        self,
        examples: Sequence[Features],
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        signature_name: str = "regress",
    ) -> list[float]:
        """Sends one Regress request and returns a value per example; see `classify`."""
        spec = ModelSpec(model, version, label)
        return self._retrying(
            lambda s: self._transport.regress(Call(spec, signature_name, s), examples)
        )

    def status(self, model: str, *, version: int | None = None) -> list[VersionStatus]:
        """Returns the state of each version of a model.

        Raises:
            RequestError: there is no such model, or the server does not answer.
        """
        spec = ModelSpec(model, version)
        return self._retrying(lambda s: self._transport.status(spec, s))

    def signatures(
        self, model: str, *, version: int | None = None, label: str | None = None
    ) -> Mapping[str, SignatureInfo]:
        """Returns a model's signatures by name.

        Raises:
            RequestError: there is no such model, or the server does not answer.
        """
        spec = ModelSpec(model, version, label)
        return self._retrying(lambda s: self._transport.signatures(spec, s))

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _rows(
        self, spec: ModelSpec, signature_name: str, texts: Any, texts_b: Any
    ) -> tuple[list[dict[str, Any]], bool]:
        """Returns the answer to each row of texts, and whether they are a single row."""
        signature = self._signature(spec, signature_name)
        names = text_inputs(list(signature.inputs))
        columns, one = call_columns(
            names or ("texts", "texts_b"), [texts] if texts_b is None else [texts, texts_b]
        )
        if len(names) != len(columns):
            raise ValueError(
                f"signature {signature_name!r} of {spec.name} takes "
                f"{', '.join(names or signature.inputs)}, "
                f"not {len(columns)} arguments: pass one string or a list of strings for each, "
                "name another signature, or call `Client.predict`"
            )
        by_name = {
            name: string_column(name, column, rank=2 if signature.inputs[name].grows else 1)
            for name, column in zip(names, columns, strict=True)
        }
        counts = {name: len(column) for name, column in by_name.items()}
        if len(set(counts.values())) != 1:
            raise ValueError(f"{spec.name} needs as many {' as '.join(names)}, not {counts}")
        padded = [name for name, info in signature.outputs.items() if info.grows]
        answer = self._answer(spec, signature_name)
        rows: list[dict[str, Any]] = []
        for start in range(0, counts[names[0]], self._batch_size):
            batch = {
                name: column[start : start + self._batch_size] for name, column in by_name.items()
            }
            outputs = self._predict(spec, signature_name, batch)
            rows.extend(reading.rows(outputs, padded, answer))
        return rows, one

    def _option_columns(
        self, spec: ModelSpec, name: str, options: Mapping[str, Any], rows: int
    ) -> dict[str, Any]:
        """Returns all options of decoding as inputs, the same for each row."""
        chosen = decoding_options(self._options(spec, name), options)
        stop = chosen.pop("stop")
        stops = [stop] if isinstance(stop, str) else list(stop)
        columns = {option: [value] * rows for option, value in chosen.items()}
        return columns | {"stop": [stops or [""]] * rows}

    def _pieces(
        self, spec: ModelSpec, name: str, inputs: Mapping[str, Any]
    ) -> Generator[str, None, Any]:
        """Returns a generator of the text of one row, which returns its answer."""
        signature, arrays = self._signature(spec, name), self._arrays(spec, name, inputs)
        answer = self._answer(spec, name)

        def begin(seconds: float) -> tuple[Any, Any]:
            parts = self._transport.stream(Call(spec, name, seconds), arrays, signature.outputs)
            return next(parts), parts

        def pieces() -> Generator[str, None, Any]:
            deadline, texts = monotonic() + self._timeout_s, []
            outputs, parts = self._retrying(begin)
            with contextlib.closing(parts):
                while outputs is not None:
                    last = outputs
                    (text,) = outputs["text"]
                    texts.append(text)
                    if text:
                        yield text.decode("utf-8", "replace")
                    outputs = next(parts, None)
                    if outputs is not None and monotonic() > deadline:
                        raise request_error(Code.DEADLINE_EXCEEDED, "", self._timeout_s)
            last = {**last, "text": np.array([b"".join(texts)], object)}
            (row,) = reading.rows(last, [], answer)
            return reading.typed(row, answer)

        return pieces()

    def _with_calls(
        self, spec: ModelSpec, pieces: Generator[str, None, Any]
    ) -> Generator[str, None, Any]:
        answer = yield from pieces
        return self._reply(spec, answer)

    def _reply(self, spec: ModelSpec, answer: Any) -> Any:
        """Returns the answer of a model that has tools, with its calls."""
        if not isinstance(answer, Generation):
            return answer
        return with_calls(answer, template_of_export(spec.name, self._template_name(spec)))

    def _template_name(self, spec: ModelSpec) -> str | None:
        """Returns the name of a model's chat template; None if its export does not say it."""
        self._signature(spec, "chat")
        note = self._signatures[spec].get(reading.CHAT_SIGNATURE)
        return None if note is None else note.method_name

    def _choose(
        self,
        columns: Mapping[str, np.ndarray],
        choices: Sequence[Any],
        spec: ModelSpec,
        *,
        signature_name: str,
    ) -> list[Selection]:
        number = len(next(iter(columns.values())))
        lists = choice_columns(choices, number)
        answers: list[Selection] = []
        for start in range(0, number, self._batch_size):
            some = slice(start, start + self._batch_size)
            inputs = {name: column[some] for name, column in columns.items()}
            outputs = self._predict(spec, signature_name, inputs | {"choices": lists[some]})
            answers += selections(list(reading.rows(outputs, [])), lists[some])
        return answers

    def _predict(
        self, spec: ModelSpec, signature_name: str, inputs: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        signature = self._signature(spec, signature_name)
        arrays = self._arrays(spec, signature_name, inputs)
        try:
            return self._retrying(
                lambda s: self._transport.predict(
                    Call(spec, signature_name, s), arrays, signature.outputs
                )
            )
        except RequestError as error:
            if error.code in (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION):
                self._signatures.pop(spec, None)  # a new version may have changed the signatures
            raise

    def _arrays(
        self, spec: ModelSpec, name: str, inputs: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """Returns inputs as arrays of a signature's dtypes."""
        infos = self._signature(spec, name).inputs
        return {
            name: _array(name, value, infos[name].dtype if name in infos else None)
            for name, value in named_columns(inputs).items()
        }

    def _signature(self, spec: ModelSpec, name: str) -> SignatureInfo:
        if spec not in self._signatures or name not in self._signatures[spec]:
            self._signatures[spec] = self.signatures(
                spec.name, version=spec.version, label=spec.label
            )
        signature = self._signatures[spec].get(name)
        if signature is None:
            raise ValueError(
                f"{spec.name} has no signature {name!r}; it has "
                f"{', '.join(sorted(self._signatures[spec]))}"
            )
        return signature

    def _answer(self, spec: ModelSpec, name: str) -> reading.AnswerType | None:
        """Returns how to read the answers of the task in a model's signatures."""
        signature = self._signature(spec, name)
        signatures = self._signatures[spec]
        if reading.TASK_SIGNATURE in signatures:
            return reading.answer_type(signatures[reading.TASK_SIGNATURE].method_name)
        default = signatures.get("serving_default", signature)
        return reading.answer_type_of(default.outputs)

    def _options(self, spec: ModelSpec, name: str) -> Mapping[str, Any]:
        """Returns the defaults of a model's options of decoding."""
        self._signature(spec, name)
        options = self._signatures[spec].get(reading.OPTIONS_SIGNATURE)
        return OLD_OPTIONS | ({} if options is None else json.loads(options.method_name))

    def _retrying(self, send: Callable[[float], _T]) -> _T:
        """Calls `send` with the seconds left, until a request is accepted or the time is up."""
        deadline = monotonic() + self._timeout_s
        pause_s = _FIRST_PAUSE_S
        for attempt in range(1, self._max_attempts + 1):
            try:
                return send(max(0.001, deadline - monotonic()))
            except RequestError as error:
                drawn_s = pause_s * (0.5 + random.random())  # so that clients do not retry in step
                drawn_s += error.retry_after_s or 0.0
                if (
                    error.code not in _RETRIED
                    or attempt == self._max_attempts
                    or monotonic() + drawn_s >= deadline
                ):
                    raise
                sleep(drawn_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise AssertionError("unreachable")


def _array(name: str, value: Any, dtype: Any) -> np.ndarray:
    """Returns a value as an array of a signature's dtype, with strings as bytes."""
    if dtype is None:  # an unknown name, which the server will reject
        array = np.asarray(value)
        return array if array.dtype.kind in "biuf" else _strings(name, value)
    if dtype == np.dtype(object):
        return _strings(name, value)
    return np.asarray(value, dtype)


def _strings(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value, object)
    flat = np.empty(array.size, object)
    for index, item in enumerate(array.reshape(-1)):
        if not isinstance(item, str | bytes):
            raise ValueError(f"{name}: expected a str or bytes, got {short_repr(item, 200)}")
        flat[index] = as_utf8(f"{name}: element {index}", item)
    return flat.reshape(array.shape)
