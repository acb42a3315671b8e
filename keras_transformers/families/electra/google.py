"""Opens Google's ELECTRA: electra_small.* and vocab.txt, without a configuration."""

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.families.bert.google import wordpiece_beside
from keras_transformers.families.bert.google_checkpoint import (
    checkpoint_family,
    open_tf1_checkpoint,
)
from keras_transformers.families.bert.shapes import encoder_arguments
from keras_transformers.families.electra.files import FAMILY

__all__: list[str] = []

# The heads of run_finetuning.py, named after its tasks. They read the first token's vector, without
# a pooler.
_OTHERS = ("task_specific.*",)


def open_google_electra(folder: Folder) -> FoundWeights:
    """Opens the discriminator of an ELECTRA checkpoint as Google published them.

    The shapes of the variables determine the model's. The number of heads is the width divided by
    64, as in all published models; GELU is the tanh form. The generator beside it, and heads that
    run_finetuning.py trained, are left out. A folder with a config.json in Hugging Face's layout is
    read according to that.

    Args:
        folder: a folder, or a checkpoint's prefix in it.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the variables are another model's.
    """
    arrays = open_tf1_checkpoint(folder.path)
    arguments = encoder_arguments(arrays, "electra", num_heads=None, missing="config.json")
    embedded = arrays.shapes["electra.embeddings.word_embeddings.weight"]
    arguments["embedding_dim"] = embedded[1]
    detects = "discriminator_predictions.dense_prediction.bias" in arrays.shapes
    return FoundWeights(
        source=folder.path,
        base="embedding",
        trained=("replaced_tokens",) if detects else ("embedding",),
        build=lambda **changes: FAMILY.build(**(arguments | changes)),
        fill=lambda model, ignore: FAMILY.fill(model, arrays, ignore=ignore),
        tokenizers=lambda lowercase=None: (wordpiece_beside(arrays.source, lowercase=lowercase),),
        parts=(*FAMILY.parts, *_OTHERS),
        has_pooler=False,
        masked_lm={"activation": "gelu_approximate", "norm_epsilon": arguments["norm_epsilon"]},
    )


def _recognises(folder: Folder) -> bool:
    is_ours = folder.once(checkpoint_family, folder.path) == "electra"
    return is_ours and not (folder.directory / "config.json").is_file()


FORMAT = Format("Google's checkpoints of ELECTRA", _recognises, open_google_electra)
