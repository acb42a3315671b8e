"""Compares WordPiece vocabularies learned by likelihood and by frequency, and BERTs on them.

    python benchmarks/training/wordpiece_merges.py DATA

DATA contains text/wikitext2.*.txt.gz and sst2/*.tsv.gz. Each rule learns 4,000 tokens from the same
95 % of WikiText-2's valid and test. A BERT of 2 layers of 64 then reads that text a number of
times, with more updates if the tokens are shorter: masked words and next sentences, AdamW. All
pieces of a word are masked or none, so that a long word is not guessed from its other half. Rows
have 64 tokens and longer sentences are cut, so more tokens per word also mean less text per
sentence. The held-out figures:

- tokens per word, and the share of the words that are one token;
- bits per character of the masked words: the loss of all their pieces, divided by their characters,
  which compares vocabularies, as the loss or the accuracy per token cannot;
- dev accuracy of SST-2 after fine-tuning that BERT.
"""

import argparse
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any, get_args

for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402

import keras_transformers as kt  # noqa: E402
from keras_transformers.data.pretraining import PretrainingSets, make_sets, read_text  # noqa: E402
from keras_transformers.data.text import load as load_examples  # noqa: E402
from keras_transformers.files import read_lines  # noqa: E402
from keras_transformers.tokenizers.vocabulary import WordPieceMerges  # noqa: E402
from keras_transformers.training import (  # noqa: E402
    TokenCrossentropy,
    WarmupLinearDecay,
    adamw,
)

VOCABULARY_SIZE, LENGTH, BATCH_SIZE = 4000, 64, 32
MODEL = {"num_layers": 2, "num_heads": 2, "hidden_dim": 64}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=3, help="times that a BERT reads the text")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    documents = read_text(arguments.data, corpora=["wikitext2"])
    print("| merges | seed | learned in | tokens/word | one token | updates | bits/char | SST-2 |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for seed in arguments.seeds:
        for merges in get_args(WordPieceMerges):
            with tempfile.TemporaryDirectory() as folder:
                start = time.process_time()
                sets = make_sets(
                    documents,
                    folder,
                    lengths=[LENGTH],
                    vocabulary_size=VOCABULARY_SIZE,
                    merges=merges,
                    whole_words=True,
                    dupe_factor=1,
                )
                seconds = time.process_time() - start
                model, updates = pretrained(sets, arguments.epochs, seed)
                bits = bits_per_character(model, sets)
                kt.convert.save_weights(model, Path(folder, "weights"), sets.tokenizer)
                accuracy = sst2_accuracy(Path(folder, "weights"), arguments.data, seed)
                per_word, whole = lengths_of_words(sets)
            print(
                f"| {merges} | {seed} | {seconds:.0f} s | {per_word:.3f} | {whole:.1%} | {updates} "
                f"| {bits:.3f} | {accuracy:.3f} |",
                flush=True,
            )


def lengths_of_words(sets: PretrainingSets) -> tuple[float, float]:
    """Returns the tokens per word of the held-out text, and the share of words of one token."""
    lines = [line for line in read_lines(sets.folder / "dev.txt.gz") if line]
    names = sets.tokenizer.tokens(sets.tokenizer.tokenize(lines).values).numpy()
    starts = np.array([not name.startswith(b"##") for name in names])
    is_whole = starts & np.append(starts[1:], True)
    return len(starts) / starts.sum(), is_whole.sum() / starts.sum()


def pretrained(sets: PretrainingSets, epochs: int, seed: int) -> tuple[keras.Model, int]:
    """Returns a BERT with its heads, trained on the text as often, and the number of updates."""
    keras.utils.set_random_seed(seed)
    shape: dict[str, Any] = {
        **MODEL,
        "vocabulary_size": sets.tokenizer.vocabulary_size,
        "max_sequence_length": LENGTH,
        "initializer_range": 0.1,  # for this width
    }
    model = kt.heads.pretrainer(kt.create_model("bert_tiny", **shape))
    train, _ = sets.open(LENGTH)
    updates = epochs * train.num_examples // BATCH_SIZE
    batches, _ = sets.batches(
        LENGTH, batch_size=BATCH_SIZE, steps_per_epoch=updates, dynamic_masking=True, seed=seed
    )
    schedule = WarmupLinearDecay(3e-3, warmup_steps=updates // 10, total_steps=updates)
    losses = {name: TokenCrossentropy() for name in model.output}
    model.compile(adamw(schedule), loss=losses, jit_compile=False)
    model.fit(batches.dataset(), steps_per_epoch=updates, shuffle=False, verbose=0)
    return model, updates


def bits_per_character(model: keras.Model, sets: PretrainingSets) -> float:
    """Returns the loss of the held-out masked words, in bits per character."""
    _, dev = sets.batches(LENGTH, batch_size=BATCH_SIZE, steps_per_epoch=1)
    vocabulary = sets.tokenizer.vocabulary
    sizes = np.array([len(token.removeprefix("##")) for token in vocabulary])
    bits, characters = 0.0, 0
    for inputs, targets, weights in dev.dataset():
        logits = model.predict_on_batch(inputs)["mask_logits"].astype(np.float64)
        ids, is_real = targets["mask_logits"].numpy(), weights["mask_logits"].numpy() > 0
        logits -= logits.max(axis=-1, keepdims=True)
        right = np.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]
        losses = np.log(np.exp(logits).sum(axis=-1)) - right  # (batch, masks)
        bits += losses[is_real].sum() / math.log(2)
        characters += int(sizes[ids[is_real]].sum())
    return bits / characters


def sst2_accuracy(weights: Path, data: Path, seed: int) -> float:
    """Returns the dev accuracy of a BERT after fine-tuning."""
    sets = (load_examples(data / "sst2" / f"{split}.tsv.gz") for split in ("train", "dev"))
    train, dev = ((examples.texts, examples.labels) for examples in sets)
    keras.utils.set_random_seed(seed)
    classify = kt.load(weights, pipeline="classification", labels=["0", "1"])
    kt.fit(classify, train, epochs=2, batch_size=32, learning_rate=1e-3, seed=seed, quiet=True)
    return kt.evaluate(classify, dev)["accuracy"]


if __name__ == "__main__":
    main()
