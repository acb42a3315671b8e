"""Hugging Face's folders: config.json, safetensors and the vocabulary of any family here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_transformers.convert.config_map import read_config
from keras_transformers.convert.families import Family, families, family_of, has_pooler
from keras_transformers.convert.formats.checkpoints import MOST_LABELS, Checkpoint, Format
from keras_transformers.convert.formats.generation_config import read_generation_options
from keras_transformers.convert.formats.tokenizer_files import longest_text, read_tokenizers
from keras_transformers.files import read_json

__all__ = ["open_huggingface"]

# The end of a class's name in `architectures` -> what its heads were trained for.
_TRAINED = {
    "ForPreTraining": ("fill_mask", "next_sentence"),
    "ForMaskedLM": ("fill_mask",),
    "ForSequenceClassification": ("classification",),
    "ForTokenClassification": ("tagging",),
    "ForQuestionAnswering": ("question_answering",),
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
        options=_options(folder, config, trained),
        **_weights(folder, family),
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


def _recognises(path: Path) -> bool:
    file = path / "config.json"
    if not file.is_file() or (path / "modules.json").is_file():
        return False
    return "registered_name" not in read_json(file)  # Keras' own


FORMAT = Format("Hugging Face's config.json with safetensors", _recognises, open_huggingface)
