"""Hugging Face's folders: config.json, safetensors and the vocabulary of any family here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_transformers.convert.config_map import read_config
from keras_transformers.convert.families import Family, Writer, families, family_of, has_pooler
from keras_transformers.convert.formats.checkpoints import (
    MOST_LABELS,
    Checkpoint,
    Format,
    Served,
)
from keras_transformers.convert.formats.generation_config import read_generation_options
from keras_transformers.convert.formats.tokenizer_files import (
    longest_text,
    read_tokenizers,
    write_tokenizers,
)
from keras_transformers.files import read_json, write_json

__all__ = ["open_huggingface", "save_huggingface"]

_WEIGHTS = "model.safetensors"
_GENERATION = "generation_config.json"
# Its fields that config.json also has.
_GENERATION_TOKENS = (
    *("bos_token_id", "eos_token_id", "pad_token_id"),
    *("decoder_start_token_id", "bad_words_ids"),
)
# The options of a pipeline for which Hugging Face's files have no fields.
_OPTIONS = "keras_transformers.json"
# Options that other files have.
_ELSEWHERE = ("labels", "image_size", "num_channels")
# The end of a class's name in `architectures` -> what its heads were trained for.
_TRAINED = {
    "ForPreTraining": ("fill_mask", "next_sentence"),
    "ForMaskedLM": ("fill_mask",),
    "ForNextSentencePrediction": ("next_sentence",),
    "ForSequenceClassification": ("classification",),
    "ForTokenClassification": ("tagging",),
    "ForQuestionAnswering": ("question_answering",),
    "ForMultipleChoice": ("multiple_choice",),
    "ForImageClassification": ("image_classification",),
}
# The tasks of models without a head on which these heads can stand.
_WITH_HEADS = ("embedding", "image_classification")


def open_huggingface(folder: Path) -> Checkpoint:
    """Opens a folder in Hugging Face's layout.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: config.json is damaged, names an unknown family, or asks for something that the
            family's layers or the pipelines lack.
    """
    family = family_of(folder, families())
    file, config = read_config(folder / "config.json")
    if "auto_map" in config:
        raise ValueError(
            f"{file}: auto_map names code to run, which is never done here: only models of known "
            "families can be loaded"
        )
    name = _architecture(file, config)
    trained = _trained(file, config, family, name)
    reads_texts = family.task != "image_classification"
    return Checkpoint(
        source=folder,
        base=family.task,
        trained=trained,
        tokenizers=lambda: read_tokenizers(folder, family) if reads_texts else (),
        heads=name,
        parts=family.parts,
        options={**_options(folder, config, trained), **_written_options(folder, trained)},
        **_weights(folder, family),
    )


def save_huggingface(served: Served, folder: Path) -> None:
    """Writes a model in Hugging Face's layout, for `from_pretrained` and `keras_transformers.load`.

    The files are config.json, model.safetensors, the tokenizers' and tokenizer_config.json,
    generation_config.json for models that write texts, preprocessor_config.json for images, and
    keras_transformers.json with the pipeline's options, which only this package reads.

    Args:
        served: the model, its tokenizers and options.
        folder: an empty folder.

    Raises:
        ValueError: transformers has no class for it, and the message lists what can be written; or
            its class reads the first token's vector, and this model the mean of all tokens.
    """
    writer, options = writer_of(served), dict(served.options)
    averages = any(layer.name == "mean_pooling" for layer in served.model.layers)
    if averages and served.task != "embedding":
        raise ValueError(
            f"transformers' {writer.classes[served.task]} reads the first token's vector, and "
            f"model {served.model.name!r} the mean of all tokens (--pooling mean): save it in the "
            "format 'keras_transformers'"
        )
    labels = {"labels": options["labels"]} if "labels" in options else {}
    writer.save(served.model, folder / _WEIGHTS)
    writer.save_config(served.model, folder / "config.json", **labels)
    ids = {}
    if served.tokenizers:
        ids = write_tokenizers(served.tokenizers, folder, writer, served.max_sequence_length)
    config = {
        "architectures": [writer.classes[served.task]],
        **ids,
        **read_json(folder / "config.json"),
    }
    write_json(folder / "config.json", config)
    if writer.generation_fields is not None:
        tokens = {name: config[name] for name in _GENERATION_TOKENS if name in config}
        if options.get("force_end"):
            tokens["forced_eos_token_id"] = config["eos_token_id"]
        write_json(folder / _GENERATION, {**tokens, **writer.generation_fields(options)})
    rest = {name: value for name, value in options.items() if name not in _ELSEWHERE}
    if rest:
        write_json(folder / _OPTIONS, {"task": served.task, "options": rest})


def writer_of(served: Served) -> Writer:
    """Returns what writes a model; ValueError unless it is the one family that has these layers."""
    kinds = {type(tokenizer).__name__ for tokenizer in served.tokenizers.values()}
    writers = [writer for family in families() for writer in family.writers]
    possible = [writer for writer in writers if served.task in writer.classes]
    found = [
        writer
        for writer in possible
        if kinds == ({writer.tokenizer} if writer.tokenizer else set())
        and writer.recognises(served.model)
    ]
    if len(found) == 1:
        return found[0]
    what = f"{served.task} by model {served.model.name!r} with {', '.join(kinds) or 'no tokenizer'}"
    names = [writer.classes[served.task] for writer in found]
    if names:
        raise ValueError(f"{what} fits several classes of transformers: {', '.join(names)}")
    tasks = ", ".join(sorted({task for writer in writers for task in writer.classes}))
    rows = ", ".join(
        f"{writer.classes[served.task]} with {writer.tokenizer or 'no tokenizer'}"
        for writer in possible
    )
    raise ValueError(
        f"{what} fits no class of transformers that is written here, which are "
        f"{rows or f'for the tasks {tasks}'}: save it in the format 'keras_transformers'"
    )


def _weights(folder: Path, family: Family) -> dict[str, Any]:
    """Returns the fields of `Checkpoint` that depend on how the family reads weights."""
    if family.read is None or family.build is None or family.fill is None:  # encoders only
        return {"build": lambda: family.load(folder, 0.1), "fill": lambda model, ignore: []}
    arguments, build, fill = family.read(folder), family.build, family.fill
    is_encoder = family.task == "embedding"
    return {
        "build": lambda: build(**arguments),
        "fill": lambda model, ignore: fill(model, folder, ignore=ignore),
        "has_pooler": is_encoder and has_pooler(folder),
        "max_sequence_length": longest_text(folder) or family.longest_text,
        "masked_lm": {
            "activation": family.masked_lm_activation or arguments["activation"],
            "norm_epsilon": arguments.get("norm_epsilon", 1e-12),
        },
    }


def _architecture(file: Path, config: Mapping[str, Any]) -> str:
    """Returns the class that wrote the weights; "" if the file does not say."""
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{file}: architectures={names!r}; expected a list with the model's class")
    if len(names) > 1:
        raise ValueError(f"{file}: architectures names {', '.join(names)}; expected one class")
    return names[0] if names else ""


def _trained(
    file: Path, config: Mapping[str, Any], family: Family, architecture: str
) -> tuple[str, ...]:
    takes_heads = family.task in _WITH_HEADS
    for end, tasks in {**(_TRAINED if takes_heads else {}), **family.trained}.items():
        if not architecture.endswith(end):
            continue
        if family.fill is None:  # no heads can be loaded
            return ()
        if tasks == ("classification",):
            return _kind_of_classifier(file, config)
        return tasks
    is_bare = architecture.endswith("Model") and not architecture.endswith("LMHeadModel")
    is_bare = is_bare or not architecture
    return (family.task,) if is_bare and family.task != "image_classification" else ()


def _kind_of_classifier(file: Path, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what a sequence classifier was trained for, by its loss."""
    kind, count = config.get("problem_type"), _num_labels(file, config)
    if kind not in (None, "regression", "single_label_classification"):
        raise ValueError(
            f"{file}: problem_type={kind!r}; only regression and single_label_classification have "
            "pipelines. Give pipeline='embedding' to use its encoder alone"
        )
    if kind == "regression" and count != 1:
        raise ValueError(f"{file}: a regression of {count} numbers; only one is supported")
    return ("regression",) if count == 1 else ("classification",)


def _num_labels(file: Path, config: Mapping[str, Any]) -> int:
    """Returns the number of labels; transformers leaves it out if the labels have names."""
    names = config.get("id2label")
    count = config.get("num_labels", 2 if names is None else None)
    if names is not None:
        ids = {str(number) for number in range(len(names))} if isinstance(names, dict) else {}
        if not ids or ids != set(names):
            raise ValueError(f"{file}: id2label={names!r}; expected names for 0, 1, 2 and so on")
        if count not in (None, len(names)):
            raise ValueError(f"{file}: num_labels={count}, but id2label has {len(names)}")
        return len(names)
    if type(count) is not int or not 1 <= count <= MOST_LABELS:
        raise ValueError(f"{file}: num_labels={count!r}; expected 1 to {MOST_LABELS:,}")
    return count


def _options(folder: Path, config: Mapping[str, Any], trained: tuple[str, ...]) -> dict[str, Any]:
    file = folder / "config.json"
    if "translation" in trained:
        return read_generation_options(folder)
    if not {"classification", "tagging", "image_classification"} & set(trained):
        return {}
    count = _num_labels(file, config)
    names = config.get("id2label") or {}
    labels = [names.get(str(number), f"LABEL_{number}") for number in range(count)]
    if not all(isinstance(label, str) and label for label in labels) or len(set(labels)) != count:
        raise ValueError(f"{file}: id2label has {labels}; expected different names")
    return {"labels": labels}


def _written_options(folder: Path, trained: tuple[str, ...]) -> dict[str, Any]:
    """Returns the options that `save_huggingface` wrote for the task, if it wrote the folder."""
    file = folder / _OPTIONS
    written = read_json(file) if file.is_file() else {}
    options = written.get("options", {})
    if not isinstance(options, dict):
        raise ValueError(f"{file}: options={options!r:.100}; expected an object")
    return options if written.get("task") in trained[:1] else {}


def _recognises(path: Path) -> bool:
    file = path / "config.json"
    if not file.is_file() or (path / "modules.json").is_file():
        return False
    return "registered_name" not in read_json(file)  # Keras' own


FORMAT = Format("Hugging Face's config.json with safetensors", _recognises, open_huggingface)
