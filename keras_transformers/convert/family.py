"""Describes a family of models; reading and writing its weights follows from that."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import ConfigMap, label_fields
from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.containers.gguf import GgufMap
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.keras_backbones import Backbone
from keras_transformers.convert.name_map import NameMap
from keras_transformers.convert.tensors import write_safetensors
from keras_transformers.models.anatomy import anatomy
from keras_transformers.models.entry import Entry

__all__ = ["Family", "Writer"]


@dataclass(frozen=True)
class Writer:
    """Holds what transformers' `from_pretrained` needs besides weights and configuration.

    Attributes:
        classes: a pipeline's task -> the class of transformers that serves it; or, for encoders of
            texts, the common prefix of their classes. Tasks define the suffixes.
        tokenizer: our tokenizer class whose files transformers reads; "" for images.
        tokenizer_class: the class in transformers that reads them.
        reads_tokenizer_json: whether it reads no other file of this tokenizer.
        special_tokens: the fields of `tokenizer_config.json` that name special tokens.
        tokenizer_fields: takes the tokenizers, by the names of their arguments in pipelines;
            returns more fields of `tokenizer_config.json`.
        config_fields: takes the same; returns the fields of `config.json` that depend on them.
        generation_fields: for models that generate text: takes the pipeline's options; returns the
            fields of `generation_config.json` other than special tokens.
        more_files: takes a model and a folder; writes additional files beside config.json.
    """

    classes: Mapping[str, str] | str
    tokenizer: str = ""
    tokenizer_class: str = ""
    reads_tokenizer_json: bool = False
    special_tokens: tuple[str, ...] = ()
    tokenizer_fields: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda tokenizers: {}
    config_fields: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda tokenizers: {}
    generation_fields: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    more_files: Callable[[keras.Model, Path], None] | None = None

    def has_tokenizer_class(self, name: Any) -> bool:
        """Returns whether this is its tokenizer's class, or the class with "Fast" added."""
        return str(name).removesuffix("Fast") == self.tokenizer_class

    def class_for(self, task: str, end: str) -> str:
        """Returns the class of transformers that serves a task; "" if there is none.

        Args:
            task: a pipeline's task.
            end: the suffix of encoders' classes for the task; "" if they have none.
        """
        if isinstance(self.classes, str):
            return f"{self.classes}{end}" if end else ""
        return self.classes.get(task, "")


def search_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `generation_config.json` for the options of `pipelines.Translator`.

    transformers searches by its own rules, regardless of the Translator's.
    """
    same = {name: options[name] for name in ("num_beams", "length_penalty", "min_length")}
    more = {
        "forced_bos_token_id": options["first_token_id"],
        "no_repeat_ngram_size": options["no_repeat_ngram_size"] or None,
        "early_stopping": options["early_stopping"] or None,
    }
    same["max_length"] = options["max_length"] + 1  # it counts the start token
    return same | {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True)
class Family:
    """A family of models: how to read it from files, build it, fill it and write it.

    Attributes:
        model_type: the family's name in `config.json`.
        entries: the family's named models, which are registered with it.
        names: the names of its weights.
        fields: the fields of its `config.json`.
        build: makes the model without a head, with random weights.
        tokenizer: takes a folder or vocabulary file and whether to lower-case (ignored by families
            that keep case); returns a tokenizer.
        writer: what else transformers needs; None if it has no class for the family.
        other_tokenizers: what transformers needs for the family's other tokenizers; only the fields
            about tokenizers count.
        parts: wildcards of the tensors outside the encoder's layers: its pooler and all heads.
        projection: wildcards of the tensors that only predict tokens, in decoders.
        masked_lm_activation: the activation of the masked-word head, if it differs from the
            encoder's.
        task: the pipelines' task that a model without a head serves.
        reads_texts: whether it has a tokenizer.
        generates: whether its models write texts, and so take no other tokenizers, and other heads
            only by `as_encoder`.
        as_encoder: makes an encoder of texts, for heads on whole texts, from a model that writes
            them; it then serves the writer's other tasks. None if its models take no other heads.
        trained: the suffix of a class -> the tasks that its heads were trained for, if they differ
            from those of other families' classes.
        target_tokenizer: takes a folder; returns the tokenizer of the model's answers, if they have
            their own.
        tokenizer_classes: the tokenizer classes, without "Fast", whose files are read; by default
            those of any family.
        pieces_file: the tokenizer's SentencePiece model, if one can be made from tokenizer.json.
        first_pieces: the first tokens of that tokenizer.json; they identify an encoder's tokenizer.
        fairseq_pieces: whether that tokenizer.json has fairseq's ids instead of the model's own.
        obeys_prefix: whether transformers' class obeys `add_prefix_space`; ours always adds it.
        vocabulary_file: the tokenizer's file, if its name identifies the tokenizer.
        longest_text: maximum tokens in a text if no file says so.
        is_default: whether a `config.json` without `model_type` is the family's.
        settle: takes a folder and the arguments from its config.json; returns the arguments of
            `build`, if some depend on the weights.
        adapt: takes a model and weights under today's names; returns the weights that the model
            needs, if they differ.
        accepts: returns whether a model whose layers all fit belongs to this family, if the names
            alone do not distinguish it from another.
        keras_nlp: its counterpart in keras-nlp, if there is one.
        gguf: its models in llama.cpp's files, if there are any.
        refused: a `model_type` of related models that are not read -> why, and the remedy.
    """

    model_type: str
    entries: Mapping[str, Entry]
    names: NameMap
    fields: ConfigMap
    build: Callable[..., keras.Model]
    tokenizer: Callable[[Folder, bool], Any]
    writer: Writer | None = None
    other_tokenizers: tuple[Writer, ...] = ()
    parts: tuple[str, ...] = ()
    projection: tuple[str, ...] = ()
    masked_lm_activation: str | None = None
    task: str = "embedding"
    reads_texts: bool = True
    generates: bool = False
    as_encoder: Callable[[keras.Model], keras.Model] | None = None
    trained: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    target_tokenizer: Callable[[Folder], Any] | None = None
    tokenizer_classes: tuple[str, ...] = ()
    pieces_file: str | None = None
    first_pieces: tuple[str, ...] = ()
    fairseq_pieces: bool = False
    obeys_prefix: bool = False
    vocabulary_file: str | None = None
    longest_text: int | None = None
    is_default: bool = False
    settle: Callable[[Folder, dict[str, Any]], dict[str, Any]] | None = None
    adapt: Callable[[keras.Model, Arrays], Arrays] | None = None
    accepts: Callable[[keras.Model], bool] = lambda model: True
    keras_nlp: Backbone | None = None
    gguf: GgufMap | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_encoder(self) -> bool:
        """Whether its models read a text in both directions."""
        return self.reads_texts and not self.generates

    @property
    def encoder_tasks(self) -> tuple[str, ...]:
        """The tasks that its models serve by `as_encoder`: the writer's, without the main one."""
        classes = self.writer.classes if self.writer is not None else ""
        return () if isinstance(classes, str) else tuple(x for x in classes if x != self.task)

    @property
    def continues_texts(self) -> bool:
        """Whether its models write after a text, rather than from it."""
        return self.generates and self.names.decoder_blocks is None

    def registered_as(self) -> Iterator[tuple[str, Any]]:
        """Yields (constant, value) for all that registering it registers."""
        yield "FAMILY", self
        yield from (("MODELS", entry) for entry in self.entries.values())

    def read(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Reads a configuration as the arguments of `build`.

        Args:
            path: a folder, or only its config.json, which may say less.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is damaged, or describes something that the layers lack.
        """
        folder = Folder.at(path)
        arguments = self.fields.read(folder)
        if self.settle is None or not folder.path.is_dir():
            return arguments
        return self.settle(folder, arguments)

    def fill(
        self,
        model: keras.Model,
        weights: Arrays | str | os.PathLike[str],
        *,
        ignore: Iterable[str] = (),
    ) -> list[str]:
        """Fills a model with weights; see `convert.load_weights`."""
        arrays = weights if isinstance(weights, Arrays) else Folder.at(weights).arrays
        return self.names.fill(model, arrays, ignore=ignore, adapt=self.adapt)

    def fits(self, model: keras.Model) -> bool:
        """Returns whether a model has the family's layers and no others."""
        try:
            self.names.check(model)
        except ValueError:
            return False
        return self.accepts(model)

    def save(self, model: keras.Model, path: str | os.PathLike[str]) -> None:
        """Writes a model's weights under Hugging Face's names.

        Args:
            model: a model of the family, with any of its heads.
            path: the `.safetensors` file to write.

        Raises:
            FileNotFoundError: the folder does not exist.
            ValueError: the family has no counterpart of a layer.
        """
        self.names.check(model)
        write_safetensors(self.names.tensors(model), path)

    def save_config(
        self,
        model: keras.Model,
        path: str | os.PathLike[str],
        *,
        labels: Sequence[str] | None = None,
        **fields: Any,
    ) -> None:
        """Writes a model's shape as Hugging Face's `config.json`, to go with `save`.

        Args:
            model: a model of the family, with any of its heads.
            path: the file to write.
            labels: the name of each class of a classifier's or tagger's head, in the order of its
                logits; "LABEL_0" and so on by default.
            **fields: more fields, such as the ids of special tokens.

        Raises:
            FileNotFoundError: the folder does not exist.
            ValueError: the model is of another family or has another number of classes, or Hugging
                Face has no name for its activation.
        """
        self.names.check(model)
        if not self.generates or anatomy(model).projection is None:
            fields = {**label_fields(model, labels), **fields}
        self.fields.write(model, path, **fields)
        if self.writer is not None and self.writer.more_files is not None:
            self.writer.more_files(model, Path(path).parent)
