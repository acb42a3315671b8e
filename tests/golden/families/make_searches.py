"""Makes searches.npz with Hugging Face transformers (the `reference` extra).

It holds what transformers' `generate` finds with tiny random models and each set of options: keys
"<family>/<options>/<seed>/token_ids" and ".../scores", of all beams. The weights come from NumPy's
random numbers, in the shapes of <family>.npz, so that they need no room here.

python tests/golden/families/make_searches.py
"""

import runpy
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
MAX_LENGTH = 14
SHAPE = (3, 7)  # of the sources
LENGTHS = (7, 3, 5)
# Options of `beam_search`, with rules="transformers".
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "first": {"first_token_ids": 7},
    "long": {"min_length": 9, "force_end": True},
    "words": {"no_repeat_ngram_size": 1},
    "pairs": {"no_repeat_ngram_size": 2, "force_end": True},
    "eager": {"early_stopping": True, "length_penalty": 0.6},
    "never": {"early_stopping": "never", "length_penalty": 1.5},
    # Those of BART for summaries, shorter.
    "summary": {
        "first_token_ids": 5,
        "min_length": 8,
        "no_repeat_ngram_size": 3,
        "early_stopping": True,
        "length_penalty": 2.0,
        "force_end": True,
    },
}
_THEIRS = {"first_token_ids": "forced_bos_token_id"}
# Families: what transformers calls them, and what precedes the names of tensors in <family>.npz.
KINDS = {
    "marian": ("Marian", "tensors/"),
    "t5": ("T5", "t5/tensors/"),
    "bart": ("Bart", "base/tensors/"),
    "pegasus": ("Pegasus", "base/tensors/"),
    "mbart": ("MBart", "base/tensors/"),
    "m2m_100": ("M2M100", "tensors/"),
}
# What the file has: family, options, number of beams.
FROZEN = (("marian", "summary", 4), ("t5", "pairs", 1), ("t5", "never", 3))
FROZEN_SEEDS = range(4)


class Kind:
    """A family's tiny models: its configuration, weights and sources of any seed."""

    def __init__(self, family: str) -> None:
        maker = runpy.run_path(str(FOLDER / f"make_{family}.py"))
        self.family, self.config = family, maker["CONFIG"]
        self.name, prefix = KINDS[family]
        golden = np.load(FOLDER / f"{family}.npz")
        self.shapes = {
            name.removeprefix(prefix): golden[name].shape
            for name in golden.files
            if name.startswith(prefix)
        }
        self.pad = self.config.get("pad_token_id", 0)
        self.end = self.config.get("eos_token_id", 1)
        self.start = self.config.get("decoder_start_token_id", self.pad)
        self.embedding = next(name for name in self.shapes if "shared" in name)

    def tensors(self, seed: int) -> dict[str, np.ndarray]:
        """Random weights, whose texts end and repeat themselves."""
        found = {}
        for name, shape in sorted(self.shapes.items()):
            noise = np.random.default_rng([seed, *map(ord, name)]).normal(size=shape)
            scale = 0.3 if name.endswith((".q.weight", ".k.weight")) else 0.6
            is_gain = "norm" in name and name.endswith("weight")
            found[name] = (1 + 0.3 * noise if is_gain else scale * noise).astype("f4")
        found[self.embedding][self.end] *= 1.7
        if "final_logits_bias" in found:
            found["final_logits_bias"][0, self.pad] = -1e4  # no search may find padding
        elif self.family == "m2m_100":  # it counts positions without padding
            found[self.embedding][self.pad] = 0
        return found

    def sources(self, seed: int) -> np.ndarray:
        """Sources of different lengths with their end token, int32."""
        ids = np.random.default_rng(seed).integers(3, self.config["vocab_size"] - 1, SHAPE)
        place = np.arange(SHAPE[1])
        lengths = np.array(LENGTHS)[:, None]
        ids = np.where(place == lengths - 1, self.end, ids)
        return np.where(place < lengths, ids, self.pad).astype("int32")

    def model(self) -> Any:
        """The model of transformers, whose weights `found` sets."""
        import transformers

        config = getattr(transformers, f"{self.name}Config")(**self.config)
        suffix = "MTModel" if self.name == "Marian" else "ForConditionalGeneration"
        return getattr(transformers, f"{self.name}{suffix}")(config).eval()

    def found(
        self, model: Any, seed: int, name: str, num_beams: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """What `generate` finds: ids (batch, num_beams, length), padded, and scores.

        The scores of one beam are 0: `generate` computes none.
        """
        import torch

        state = {key: torch.tensor(array) for key, array in self.tensors(seed).items()}
        _, unexpected = model.load_state_dict(state, strict=False)
        assert not unexpected
        sources = torch.tensor(self.sources(seed)).long()
        options = dict(OPTIONS[name])
        forced = self.end if options.pop("force_end", False) else None
        options = {_THEIRS.get(option, option): value for option, value in options.items()}
        if num_beams == 1:  # they are the options of beams
            options = {
                option: value
                for option, value in options.items()
                if option not in ("length_penalty", "early_stopping")
            }
        model.generation_config.forced_eos_token_id = None
        with torch.no_grad():
            result = model.generate(
                sources,
                attention_mask=(sources != self.pad).long(),
                do_sample=False,
                num_beams=num_beams,
                num_return_sequences=num_beams,
                max_new_tokens=MAX_LENGTH,
                forced_eos_token_id=forced,
                return_dict_in_generate=True,
                output_scores=True,
                **options,
            )
        ids = result.sequences.numpy()[:, 1:]
        ids = np.pad(ids, ((0, 0), (0, MAX_LENGTH - ids.shape[1])), constant_values=self.pad)
        num_ends = np.cumsum(ids == self.end, axis=1) - (ids == self.end)
        ids = np.where(num_ends > 0, self.pad, ids)  # where pad is 0, beams are padded with the end
        scores = np.zeros(len(ids)) if num_beams == 1 else result.sequences_scores.numpy()
        shape = (len(sources), num_beams)
        return ids.reshape(*shape, -1).astype("int32"), scores.reshape(shape).astype("float32")


def write() -> None:
    """Writes the golden file."""
    arrays = {}
    for family, name, num_beams in FROZEN:
        kind = Kind(family)
        model = kind.model()
        for seed in FROZEN_SEEDS:
            ids, scores = kind.found(model, seed, name, num_beams)
            arrays[f"{family}/{name}/{seed}/token_ids"] = ids
            arrays[f"{family}/{name}/{seed}/scores"] = scores
    file = Path(__file__).with_name("searches.npz")
    np.savez_compressed(file, **arrays)
    print(f"{file}: {file.stat().st_size} bytes, {len(arrays)} arrays")


if __name__ == "__main__":
    write()
