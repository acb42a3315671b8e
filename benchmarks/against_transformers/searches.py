"""Compares the tokens of our beam search with those of transformers' `generate`.

    pip install -e '.[reference]'
    python benchmarks/against_transformers/searches.py [--models 20]

For each kind of T5 and for Marian, transformers creates models with different random weights, in
which the end token is likely, and saves them; our reader builds and fills ours. Both translate four
sources with four beams. A row has the number of sources with the same best tokens, by either set of
rules of our search, the number that are cut off, and the largest difference of the four beams'
scores by transformers' rules.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import torch
import transformers
from outputs import MARIAN, T5, VOCABULARY

import keras_transformers as kt
from keras_transformers.convert.families import families, family_of

NUM_BEAMS, MAX_LENGTH, LENGTHS = 4, 12, (9, 2, 6, 4)
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "T5 1.0": ("t5", "T5ForConditionalGeneration", T5),
    "T5 1.1": (
        "t5",
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "Marian": ("marian", "MarianMTModel", MARIAN),
}


def main(models: int) -> None:
    """Prints one row per kind of model."""
    print(f"transformers {transformers.__version__}, {models} models, {len(LENGTHS)} sources each")
    print('| model | same tokens, rules="transformers" | "gnmt" | cut | scores differ by |')
    print("|---|--:|--:|--:|--:|")
    for name in KINDS:
        counts, gaps = zip(*(compared(name, seed) for seed in range(models)), strict=True)
        same, ours, cut = np.sum(counts, axis=0)
        total = models * len(LENGTHS)
        print(f"| {name} | {same} of {total} | {ours} | {cut} | {max(gaps):.1e} |", flush=True)


def compared(name: str, seed: int) -> tuple[tuple[int, int, int], float]:
    """Returns how many answers are the same by each set of rules, or cut, and how scores differ."""
    family, kind, fields = KINDS[name]
    pad, end = (fields["pad_token_id"], 0) if family == "marian" else (0, 1)
    transformers.set_seed(seed)
    theirs = getattr(transformers, kind)
    theirs = theirs(theirs.config_class(**fields)).eval()
    with torch.no_grad():
        if name == "T5 1.1":  # new models tie it, published ones do not
            theirs.lm_head.weight = torch.nn.Parameter(torch.randn(VOCABULARY, T5["d_model"]))
        for parameter in theirs.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
        theirs.get_output_embeddings().weight[end] *= 2.0
        if family == "marian":
            theirs.final_logits_bias[0, pad] = -1e4  # neither search may generate padding
    random = np.random.default_rng(seed)
    real = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    sources = np.where(real, random.integers(3, VOCABULARY - 3, real.shape), pad).astype("int32")
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        files = family_of(Path(folder), families())
        ours = getattr(kt.models.encoder_decoders, family)
        ours = getattr(ours, family)(**files.read(folder))
        files.fill(ours, folder)
    theirs.generation_config.forced_eos_token_id = None  # part of Marian's search; here it cuts
    with torch.no_grad():
        wanted = theirs.generate(
            torch.tensor(sources).long(),
            attention_mask=torch.tensor(real).long(),
            num_beams=NUM_BEAMS,
            num_return_sequences=NUM_BEAMS,
            max_new_tokens=MAX_LENGTH,
            return_dict_in_generate=True,
            output_scores=True,
        )
    tokens = wanted.sequences.numpy().reshape(len(sources), NUM_BEAMS, -1)[:, 0, 1:]
    same = []
    for rules in ("transformers", "gnmt"):
        step, cache = ours.start_decoding(sources)
        found = kt.decoding.beam_search(
            step,
            tf.fill([len(sources)], pad),
            cache,
            end_token_id=end,
            max_length=MAX_LENGTH,
            num_beams=NUM_BEAMS,
            rules=rules,
            pad_token_id=pad,
            growing_axis=2,
        )
        ids = found.token_ids.numpy()[:, 0, : tokens.shape[1]]
        length = found.lengths.numpy()[:, 0]
        beyond = np.arange(tokens.shape[1]) >= length[:, None]  # where transformers may pad
        same.append(int(((ids == tokens) | beyond).all(axis=1).sum()))
        if rules == "transformers":
            cut = int((~found.finished.numpy()[:, 0]).sum())
            scores = found.scores.numpy().reshape(-1)
            gap = float(np.abs(scores - wanted.sequences_scores.numpy()).max())
    return (same[0], same[1], cut), gap


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=20)
    main(parser.parse_args().models)
