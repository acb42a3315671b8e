"""MaxSim's scores, against loops over tokens."""

import keras
import numpy as np

from keras_transformers.layers import MaxSim


def test_scores_are_sums_of_the_best_similarities():
    random = np.random.default_rng(0)
    queries, documents = random.normal(size=(3, 4, 5)), random.normal(size=(2, 6, 5))
    query_mask = random.random((3, 4)) < 0.7
    document_mask = random.random((2, 6)) < 0.6
    document_mask[:, 0] = True
    found = MaxSim()(*(keras.ops.array(x) for x in (queries, documents, query_mask, document_mask)))
    for i, j in np.ndindex(3, 2):
        tokens = documents[j][document_mask[j]]
        best = [max(token @ other for other in tokens) for token in queries[i][query_mask[i]]]
        np.testing.assert_allclose(found[i, j], sum(best), rtol=1e-5)


def test_a_document_without_tokens_scores_0():
    ones, none = np.ones((1, 3, 2), "float32"), np.zeros((1, 3), bool)
    assert float(MaxSim()(ones, ones, ~none, none)[0, 0]) == 0
    assert float(MaxSim()(ones, ones, none, ~none)[0, 0]) == 0
