"""Opens Google's ELECTRA: electra_small.* and vocab.txt, without a configuration."""

from pathlib import Path

from keras_transformers.convert.containers.tf1_checkpoint import (
    checkpoint_family,
    open_tf1_checkpoint,
)
from keras_transformers.convert.formats.encoder_shapes import encoder_arguments
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.families.bert.google import wordpiece_beside
from keras_transformers.families.electra.files import FAMILY

__all__: list[str] = []

# The heads of run_finetuning.py, named after its tasks. They read the first token's vector, without
# a pooler.
_OTHERS = ("task_specific.*",)


def open_google_electra(path: Path) -> FoundWeights:
    """Opens the discriminator of an ELECTRA checkpoint as Google published them.

    The shapes of the variables determine the model's. The number of heads is the width divided by
    64, as in all published models; GELU is the tanh form. The generator beside it, and heads that
    run_finetuning.py trained, are left out. A folder with a config.json in Hugging Face's layout is
    read according to that.

    Args:
        path: a folder, or a checkpoint's prefix in it.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the variables are another model's.
    """
    arrays = open_tf1_checkpoint(path)
    arguments = encoder_arguments(arrays, "electra", num_heads=None, missing="config.json")
    detects = "discriminator_predictions.dense_prediction.bias" in arrays.shapes
    return FoundWeights(
        source=path,
        base="embedding",
        trained=("replaced_tokens",) if detects else ("embedding",),
        build=lambda **changes: FAMILY.build(**(arguments | changes)),
        fill=lambda model, ignore: FAMILY.fill(model, arrays, ignore=ignore),
        tokenizers=lambda lowercase=None: (wordpiece_beside(arrays.source, lowercase=lowercase),),
        parts=(*FAMILY.parts, *_OTHERS),
        has_pooler=False,
        masked_lm={"activation": "gelu_approximate", "norm_epsilon": arguments["norm_epsilon"]},
    )


def _recognises(path: Path) -> bool:
    folder = path if path.is_dir() else path.parent
    return checkpoint_family(path) == "electra" and not (folder / "config.json").is_file()


FORMAT = Format("Google's checkpoints of ELECTRA", _recognises, open_google_electra)
