"""Makes left_behind/hf4_tf_deberta.tar.xz: DeBERTa's TensorFlow classes in transformers 4.

    TF_USE_LEGACY_KERAS=1 python tests/golden/make_deberta_tf.py spm.model

transformers 4.57.3, tensorflow-cpu 2.19.1, tf-keras 2.19.0; spm.model is that of
tests/deberta_toy.py with normalization="identity", which is short.
See tests/left_behind.py for what the archive holds.
"""

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "left_behind" / "hf4_tf_deberta.tar.xz"
LABELS = ["contradiction", "neutral", "entailment"]


def main(pieces: str) -> None:
    """Writes the archive."""
    import tensorflow as tf
    import transformers

    tokenizer = transformers.DebertaV2TokenizerFast(vocab_file=pieces)
    random = np.random.default_rng(0)
    size = {
        "vocab_size": len(tokenizer) + 3,  # published ones have more rows than tokens, too
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 20,
        "relative_attention": True,
        "position_buckets": 6,
        "max_relative_positions": 12,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        "type_vocab_size": 0,
    }
    names = dict(enumerate(LABELS))
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    own = {"share_att_key": False}
    folders: dict[str, tuple[str, dict[str, Any], bool]] = {
        "cls": ("ForSequenceClassification", labels, False),
        "tok": ("ForTokenClassification", {"num_labels": 5, **own}, False),
        "qa": ("ForQuestionAnswering", {}, False),
        "mlm": ("ForMaskedLM", {}, False),
        "conv": ("Model", {"conv_kernel_size": 3, "conv_act": "gelu"}, False),
        "cls_safe": ("ForSequenceClassification", labels, True),
    }
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(FILE, "w:xz") as archive:
        for name, (kind, options, safe) in folders.items():
            config = transformers.DebertaV2Config(**{**size, **options})
            model = getattr(transformers, f"TFDebertaV2{kind}")(config)
            ids = random.integers(4, len(tokenizer), (2, 9)).astype("int32")
            mask = np.ones_like(ids)
            mask[1, 6:] = ids[1, 6:] = 0
            given = {"input_ids": tf.constant(ids), "attention_mask": tf.constant(mask)}
            model(given)
            for weight in model.weights:
                weight.assign(random.normal("gamma" in weight.name, 0.3, weight.shape))
            found = model(given, training=False)
            folder = Path(scratch, name)
            model.save_pretrained(folder, safe_serialization=safe)
            tokenizer.save_pretrained(folder)
            (folder / "tokenizer.json").unlink()  # as long as all others together
            arrays = {f"in_{key}": value.numpy() for key, value in given.items()}
            arrays |= {f"out_{key}": x.numpy() for key, x in found.items() if hasattr(x, "numpy")}
            np.savez_compressed(folder.with_suffix(".npz"), **arrays)
        archive.add(scratch, "hf4_tf_deberta")


if __name__ == "__main__":
    main(sys.argv[1])
