"""Opens Google's ALBERT: albert_config.json, model.ckpt-best.* and 30k-clean.model."""

from dataclasses import replace
from typing import Any

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.families.albert.files import CONFIG, FAMILY
from keras_transformers.families.bert.google import head_labels
from keras_transformers.families.bert.google_checkpoint import (
    checkpoint_family,
    open_tf1_checkpoint,
)

__all__: list[str] = []

_NAME = "albert_config.json"
# The fields as modeling.py reads them. Its "gelu" is the tanh form.
_CONFIG = replace(
    CONFIG,
    activation=("hidden_act", "gelu"),
    activations={**CONFIG.activations, "gelu": "gelu_approximate"},
)


def open_google_albert(folder: Folder) -> FoundWeights:
    """Opens a folder as Google published them, or one fine-tuned by run_classifier.py.

    Texts are lower-cased and lose their accents, as in all of Google's English models.

    Args:
        folder: the folder, or a checkpoint's prefix in it.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the variables are another model's.
    """
    arrays = open_tf1_checkpoint(folder.path)
    directory = folder.directory
    file = directory / _NAME
    if not file.is_file():
        raise FileNotFoundError(
            f"{directory} has the checkpoint {arrays.source.name} of an ALBERT but no {_NAME}, "
            "which says how many layers and attention heads it has: copy it and the SentencePiece "
            "model from the folder of the pretrained model"
        )
    arguments = _CONFIG.read(file)
    trained, options = _trained(arrays.shapes)

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:
        models = sorted(directory.glob("*.model"))
        if len(models) != 1:
            raise FileNotFoundError(
                f"{directory}: expected one SentencePiece model, such as 30k-clean.model; found "
                + (", ".join(model.name for model in models) or "none")
            )
        return (FAMILY.tokenizer(Folder(models[0]), lowercase is not False),)

    return FoundWeights(
        source=folder.path,
        base="embedding",
        trained=trained,
        build=lambda **changes: FAMILY.build(**(arguments | changes)),
        fill=lambda model, ignore: FAMILY.fill(model, arrays, ignore=ignore),
        tokenizers=tokenizers,
        parts=FAMILY.parts,
        has_pooler="albert.pooler.weight" in arrays.shapes,
        options=options,
        masked_lm={name: arguments[name] for name in ("activation", "norm_epsilon")},
    )


def _trained(shapes: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Returns the tasks that the heads were trained for, and the options of their pipelines."""
    if "classifier.bias" in shapes:
        labels = head_labels(shapes)
        if len(labels) == 1:
            return ("regression",), {}
        return ("classification",), {"labels": labels}
    return ("fill_mask",) if "predictions.bias" in shapes else ("embedding",), {}


def _recognises(folder: Folder) -> bool:
    is_ours = folder.once(checkpoint_family, folder.path) == "albert"
    return is_ours and not (folder.directory / "config.json").is_file()


FORMAT = Format("Google's checkpoints of ALBERT", _recognises, open_google_albert)
