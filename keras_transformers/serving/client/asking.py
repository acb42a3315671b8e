"""A client for TF Serving and the local server, over REST or gRPC."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, sleep
from typing import Any, Self, TypeVar

import numpy as np

from keras_transformers.files.errors import short_repr
from keras_transformers.files.surrogates import as_utf8
from keras_transformers.serving.client.target import Target, connect
from keras_transformers.serving.client.transport import (
    Call,
    Features,
    SignatureInfo,
    Transport,
    VersionStatus,
)
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.signatures import ModelSpec
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.answers import Result
from keras_transformers.tasks.generation.conversations import (
    OLD_OPTIONS,
    as_conversations,
    conversation_columns,
    decoding_options,
)
from keras_transformers.tasks.texts import (
    check_is_list,
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
        target: "http://host:port" or "https://..." for REST; "host:port" for gRPC, or
            "grpcs://host:port" for gRPC with TLS. "kserve+http://host:port", and likewise
            kserve+https, kserve+grpc and kserve+grpcs, for servers that speak the Open Inference
            Protocol (KServe v2); they have no `classify` and no `regress`.
        timeout_s: seconds for each request, including its retries.
        max_attempts: how many times to try a request. Only requests that the server did not accept
            (UNAVAILABLE, RESOURCE_EXHAUSTED) are retried, after growing pauses.
        batch_size: maximum rows that `ask` and `rows` put into one request.
        root_certificates: a PEM file of the certificate authorities to trust; the system's by
            default.

    Raises:
        ValueError: the target is malformed, or a number is not positive.
        FileNotFoundError: the file of certificates does not exist.

    Example:
        >>> from keras_transformers.serving import Client
        >>> with Client("http://127.0.0.1:8501") as client:  # doctest: +SKIP
        ...     client.ask(["Ein Mann fährt Rad ."], model="translate_de_en")
        [Translation(text='A man is riding a bike.', score=-3.67)]
    """

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float = 30.0,
        max_attempts: int = 5,
        batch_size: int = 32,
        root_certificates: str | None = None,
    ) -> None:
        if timeout_s <= 0 or max_attempts < 1 or batch_size < 1:
            raise ValueError(
                f"timeout_s {timeout_s}, max_attempts {max_attempts}, batch_size {batch_size}: "
                "expected positive numbers"
            )
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts
        self._batch_size = batch_size
        self._transport: Transport = connect(Target.parse(target), root_certificates)
        self._signatures: dict[ModelSpec, Mapping[str, SignatureInfo]] = {}

    def ask(
        self,
        texts: Sequence[str | bytes],
        texts_b: Sequence[str | bytes] | Sequence[Sequence[str | bytes]] | None = None,
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        signature_name: str = "serving_default",
    ) -> list[Result | dict[str, Any]]:
        """Returns a model's answers to texts.

        Args:
            texts: one text, prompt or question per row.
            texts_b: the second text of each pair, the context of each question, or the list of
                choices for each text.
            model: the model's name.
            version: the version's number; by default the label's version, or else the latest.
            label: the version's label.
            signature_name: the signature to run.

        Returns:
            One result per text, of the type in `pipelines.results` for the task in the model's
            export; a dict for other models and signatures.

        Raises:
            RequestError: the server refused the request or failed.
            ValueError: the model does not take these texts.
        """
        rows = self.rows(
            texts,
            texts_b,
            model=model,
            version=version,
            label=label,
            signature_name=signature_name,
        )
        answer = self._answer(ModelSpec(model, version, label), signature_name)
        return [reading.typed(row, answer) for row in rows]

    def rows(
        self,
        texts: Sequence[str | bytes],
        texts_b: Sequence[str | bytes] | Sequence[Sequence[str | bytes]] | None = None,
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        signature_name: str = "serving_default",
    ) -> list[dict[str, Any]]:
        """Asks like `ask`, but returns dicts: output name -> str, number or nested list."""
        spec = ModelSpec(model, version, label)
        signature = self._signature(spec, signature_name)
        answer = self._answer(spec, signature_name)
        columns = [texts] if texts_b is None else [texts, texts_b]
        names = text_inputs(list(signature.inputs))
        for name, column in zip(("texts", "texts_b"), columns, strict=False):
            check_is_list(name, column)
        by_name = {}
        if len(names) == len(columns):
            by_name = {
                name: string_column(name, column, rank=2 if signature.inputs[name].grows else 1)
                for name, column in zip(names, columns, strict=True)
            }
        counts = [len(column) for column in by_name.values() or columns]
        if not by_name or len(set(counts)) != 1:
            raise ValueError(
                f"signature {signature_name!r} of {model} takes {', '.join(signature.inputs)}, not "
                f"{' and '.join(map(str, counts))} texts; asking sends only texts, one per input: "
                "name another signature, or call `Client.predict`"
            )
        padded = [name for name, info in signature.outputs.items() if info.grows]
        rows: list[dict[str, Any]] = []
        for start in range(0, counts[0], self._batch_size):
            batch = {
                name: column[start : start + self._batch_size] for name, column in by_name.items()
            }
            outputs = self.predict(
                batch, model=model, version=version, label=label, signature_name=signature_name
            )
            rows.extend(reading.rows(outputs, padded, answer))
        return rows

    def chat(
        self,
        messages: Sequence[Any],
        *,
        model: str,
        version: int | None = None,
        label: str | None = None,
        **options: Any,
    ) -> Any:
        """Returns a model's answer to one conversation or several.

        Args:
            messages: a sequence of {"role": ..., "content": ...}, ending with a message from the
                user; or a sequence of such sequences.
            model: see `ask`.
            version: see `ask`.
            label: see `ask`.
            **options: max_length (of new tokens), temperature, top_k, top_p, seed,
                repetition_penalty, and `stop`, one or several strings that end an answer; each has
                one value for all conversations. The export's own are the defaults. `temperature`
                or `top_p` without `top_k` makes an export that is greedy sample.

        Returns:
            A `results.Generation` for one conversation; a list for several.

        Raises:
            RequestError: the server refused the request or failed.
            ValueError: a message or an option is malformed, or the model does not chat.
        """
        spec = ModelSpec(model, version, label)
        conversations, one = as_conversations(messages)
        if not conversations:
            return []
        roles, texts = conversation_columns(conversations)
        inputs: dict[str, Any] = {"roles": roles, "texts": texts}
        name = "chat"
        if options:
            name = "chat_complete"
            chosen = decoding_options(self._options(spec, name), options)
            stop = chosen.pop("stop")
            stops = [stop] if isinstance(stop, str) else list(stop)
            inputs["stop"] = [stops or [""]] * len(roles)
            inputs |= {option: [value] * len(roles) for option, value in chosen.items()}
        outputs = self.predict(
            inputs, model=model, version=version, label=label, signature_name=name
        )
        answer = self._answer(spec, name)
        rows = [reading.typed(row, answer) for row in reading.rows(outputs, [], answer)]
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
            model: See `ask`.
            version: See `ask`.
            label: See `ask`.
            signature_name: See `ask`.

        Returns:
            Output name -> array; strings are bytes in arrays of dtype object.

        Raises:
            RequestError: the server refused the request or failed.
            ValueError: an input cannot become an array of the signature's dtype.
        """
        spec = ModelSpec(model, version, label)
        signature = self._signature(spec, signature_name)
        infos = signature.inputs
        arrays = {
            name: _array(name, value, infos[name].dtype if name in infos else None)
            for name, value in named_columns(inputs).items()
        }
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
            model: See `ask`.
            version: See `ask`.
            label: See `ask`.
            signature_name: See `ask`.

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
