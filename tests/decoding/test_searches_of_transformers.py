"""Searches with options against transformers' `generate`, with the models of make_searches.py."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.families import family_named
from keras_transformers.decoding import beam_search

FOLDER = Path(__file__).parents[1] / "golden" / "families"
MAKER = runpy.run_path(str(FOLDER / "make_searches.py"))
GOLDEN = np.load(FOLDER / "searches.npz")
NUM_MODELS = 80


class Searches:
    """Our model of a family, and its searches as graphs."""

    def __init__(self, family, folder):
        self.kind = MAKER["Kind"](family)
        self.folder = folder
        config = {"model_type": family, **self.kind.config}
        family = family_named(family)
        (folder / "config.json").write_text(json.dumps(config))
        self.family, self.model = family, family.build(**family.fields.read(folder))
        self.graphs = {}

    def found(self, seed, name, num_beams):
        """The ids and scores of all beams of a model, as `Kind.found` returns transformers'."""
        self.family.fill(self.model, Arrays.of(self.folder, self.kind.tensors(seed)))
        if (name, num_beams) not in self.graphs:
            self.graphs[name, num_beams] = tf.function(
                lambda sources: self.search(sources, name, num_beams), autograph=False
            )
        found = self.graphs[name, num_beams](tf.constant(self.kind.sources(seed)))
        return found.token_ids.numpy(), found.scores.numpy()

    def search(self, sources, name, num_beams):
        step, cache = self.model.start_decoding(sources)
        return beam_search(
            step,
            tf.fill([sources.shape[0]], self.kind.start),
            cache,
            end_token_id=self.kind.end,
            max_length=MAKER["MAX_LENGTH"],
            num_beams=num_beams,
            pad_token_id=self.kind.pad,
            rules="transformers",
            growing_axis=2,
            **MAKER["OPTIONS"][name],
        )


def assert_same(found, wanted):
    """The same ids; and scores, which transformers does not compute for one beam."""
    np.testing.assert_array_equal(found[0], wanted[0])
    if wanted[0].shape[1] > 1:
        np.testing.assert_allclose(found[1], wanted[1], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("family", "name", "num_beams"), MAKER["FROZEN"])
def test_what_transformers_found(family, name, num_beams, tmp_path):
    ours = Searches(family, tmp_path)
    for seed in MAKER["FROZEN_SEEDS"]:
        key = f"{family}/{name}/{seed}"
        wanted = GOLDEN[f"{key}/token_ids"], GOLDEN[f"{key}/scores"]
        assert_same(ours.found(seed, name, num_beams), wanted)


@pytest.mark.reference
@pytest.mark.parametrize(
    ("family", "name"),
    [
        *((family, name) for family in ("marian", "t5") for name in MAKER["OPTIONS"]),
        *((family, "summary") for family in ("bart", "pegasus")),
        *((family, "first") for family in ("mbart", "m2m_100")),
    ],
)
def test_what_transformers_finds_with_many_models(family, name, tmp_path):
    ours = Searches(family, tmp_path)
    theirs = ours.kind.model()
    most = 2 + list(MAKER["OPTIONS"]).index(name) % 4  # 2 to 5 beams
    matters = name == "plain"
    num_ties = 0
    for seed in range(NUM_MODELS):
        num_beams = most if seed % 4 else 1
        found = ours.found(seed, name, num_beams)
        wanted = ours.kind.found(theirs, seed, name, num_beams)
        is_same = (found[0] == wanted[0]).all()
        if not is_same and num_beams > 1:  # of two texts that float32 cannot tell apart, the other
            np.testing.assert_allclose(found[1], wanted[1], rtol=1e-6, atol=0, err_msg=str(seed))
            num_ties += 1
        else:
            assert_same(found, wanted)
        if not matters and num_beams > 1:
            plain = ours.kind.found(theirs, seed, "plain", num_beams)
            matters = (plain[0] != wanted[0]).any()
    assert matters, f"{name} changes no search"
    assert num_ties <= 1
