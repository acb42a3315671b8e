"""mteb measures an embedder as `kt.evaluate` does, on a task from local data."""

import numpy as np
import pytest
import tiny

import keras_transformers as kt
from keras_transformers.fitting import MtebEncoder

TEXTS = ["a good film", "bad", "very long film", "not a film !"]
OTHERS = ["a film", "very bad", "good", "a film ."]
SCORES = [5.0, 4.0, 1.0, 2.5]


def test_vectors_and_cosines():
    embed = tiny.pipeline("embedding")
    encoder = MtebEncoder(embed)
    found = encoder.encode([{"text": TEXTS[:3]}, {"text": TEXTS[3:]}], task_metadata=None)
    np.testing.assert_allclose(found, [x.vector for x in embed(TEXTS)], atol=1e-6)
    np.testing.assert_allclose(np.diag(encoder.similarity(found, found)), 1, atol=1e-6)
    np.testing.assert_allclose(encoder.similarity_pairwise(found, 2 * found), 1, atol=1e-6)


def test_prompts_of_queries_and_documents():
    prompts = {"query": "good ", "document": "bad "}
    embed = tiny.pipeline("embedding").with_options(prompts=prompts)
    encoder = MtebEncoder(embed)
    for side in prompts:
        found = encoder.encode([{"text": TEXTS}], prompt_type=side)
        expected = [x.vector for x in embed(TEXTS, prompt_name=side)]
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.reference
def test_mteb_gives_the_figures_of_evaluate(tmp_path):
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks.sts import AbsTaskSTS

    class Local(AbsTaskSTS):
        metadata = mteb.get_task("SICK-R").metadata.model_copy(update={"name": "Local"})

        def load_data(self, **_):
            columns = {"sentence1": TEXTS, "sentence2": OTHERS, "score": SCORES}
            self.dataset = {split: datasets.Dataset.from_dict(columns) for split in ("test",)}
            self.data_loaded = True

    embed = tiny.pipeline("embedding")
    found = mteb.evaluate(
        MtebEncoder(embed), Local(), cache=None, overwrite_strategy="always", co2_tracker=False
    )
    scores = found.task_results[0].scores["test"][0]
    rows = {"text": TEXTS, "text_b": OTHERS, "score": [x / 5 for x in SCORES]}
    expected = kt.evaluate(embed, rows)
    for name in ("pearson", "spearman"):
        assert scores[f"cosine_{name}"] == pytest.approx(expected[name], abs=1e-5)
