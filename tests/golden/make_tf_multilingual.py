"""Makes left_behind/hf4_tf_multilingual.tar.xz: files of transformers 4's TensorFlow classes.

It has tiny random models of TFCamembert* and TFMT5*, as tf_model.h5 and as the safetensors with
Keras' names that the same classes write, with their tokenizers and NAME.npz; see left_behind.py.

Needs transformers 4.57.3, tensorflow-cpu 2.19.1, tf-keras 2.19.0 and sentencepiece:
TF_USE_LEGACY_KERAS=1 python tests/golden/make_tf_multilingual.py
"""

import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import transformers

NAME = "hf4_tf_multilingual"
LINES = ["un bon film, un très bon film !", "deux chiens courent", "a small dog runs"] * 4
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SHAPE |= {"intermediate_size": 24, "max_position_embeddings": 22, "type_vocab_size": 1}
T5_SHAPE = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
RANDOM = np.random.default_rng(0)


def pieces(file: Path, **ids: int) -> str:
    """Learns a SentencePiece model."""
    with file.open("wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES),
            model_writer=writer,
            vocab_size=40,
            normalization_rule_name="identity",  # its table would be most of the archive
            hard_vocab_limit=False,
            minloglevel=2,
            **ids,
        )
    return str(file)


def write(folder: Path, kind: str, config: Any, tokenizer: Any, *, decodes: bool = False) -> None:
    """Writes a random model twice, as HDF5 and as safetensors, and its inputs and outputs."""
    model = getattr(transformers, kind)(config)
    model(model.dummy_inputs)
    for weight in model.weights:
        mean = 1.0 if "gamma" in weight.name or "layer_norm" in weight.name else 0.0
        weight.assign(RANDOM.normal(mean, 0.3, weight.shape))
    ids = RANDOM.integers(7, 30, (2, 9)).astype("int32")
    mask = np.ones_like(ids)
    mask[1, 6:] = 0
    ids[1, 6:] = config.pad_token_id
    given = {"input_ids": ids, "attention_mask": mask}
    if decodes:
        targets = RANDOM.integers(3, 30, (2, 9)).astype("int32")
        targets[:, 0] = 0
        given["decoder_input_ids"] = targets
    logits = model(given, training=False).logits.numpy()
    for form in ("h5", "safe"):
        path = folder.with_name(f"{folder.name}_{form}")
        model.save_pretrained(path, safe_serialization=form == "safe")
        tokenizer.save_pretrained(path)
        arrays = {f"in_{name}": value for name, value in given.items()}
        if decodes:
            del arrays["in_attention_mask"]  # of the sources
        np.savez(path.with_suffix(".npz"), **arrays, out_logits=logits)


def main() -> None:
    """Writes the archive."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name, NAME)
        top.mkdir()
        file = pieces(Path(name, "sentencepiece.bpe.model"))
        tokenizer = transformers.CamembertTokenizerFast(
            vocab_file=file, tokenizer_file=None, from_slow=True
        )
        size = {"vocab_size": len(tokenizer), "bos_token_id": 5, "eos_token_id": 6}
        config = transformers.CamembertConfig(**SHAPE, **size)
        write(top / "camembert_mlm", "TFCamembertForMaskedLM", config, tokenizer)
        config = transformers.CamembertConfig(**SHAPE, **size, num_labels=3)
        write(top / "camembert_cls", "TFCamembertForSequenceClassification", config, tokenizer)
        file = pieces(Path(name, "spiece.model"), pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
        tokenizer = transformers.T5Tokenizer(file, extra_ids=0)
        config = transformers.MT5Config(**T5_SHAPE, vocab_size=len(tokenizer) + 8)
        write(top / "mt5", "TFMT5ForConditionalGeneration", config, tokenizer, decodes=True)
        archive = Path(__file__).parent / "left_behind" / f"{NAME}.tar.xz"
        with tarfile.open(archive, "w:xz") as opened:
            for path in sorted(top.rglob("*")):
                if path.is_file():
                    opened.add(path, path.relative_to(name))
        print(archive, archive.stat().st_size)


if __name__ == "__main__":
    main()
