"""ELMo's layer weights, through the same call and type as attention."""

import numpy as np
import pytest
import tiny

from keras_transformers.families.elmo.model import elmo, features
from keras_transformers.inspection import attention, attention_figure, layer_weights
from keras_transformers.models.features import feature_reader, join, layer_features
from keras_transformers.pipelines import Tagger
from keras_transformers.tasks.tagging.head import tagger


def test_the_mix_of_elmos_layers():
    encoder = elmo(lstm_dim=8, projection_dim=4, num_highways=1, filters=[(1, 3)])
    model = features(encoder)
    mix = model.get_layer("scalar_mix")
    mix.weights_before_softmax.assign([0.0, np.log(2.0), np.log(5.0)])
    found = layer_weights(model)
    np.testing.assert_allclose(found.probabilities[0, 0, 0], [1 / 8, 2 / 8, 5 / 8], rtol=1e-6)
    assert found.keys == ["layer 0", "layer 1", "layer 2"]
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[translation]")
    attention_figure(found)


def test_a_model_without_a_mix_has_none():
    assert layer_weights(tiny.encoder()) is None
    assert set(attention(tiny.pipeline("classification"), "a film")) == {"encoder"}


def test_attention_has_both_where_a_task_mixes_the_layers_of_an_encoder():
    reader = tagger(feature_reader(1, 8, combine="weighted_sum", units=4), 2)
    model = join(layer_features(tiny.encoder(), "weighted_sum_all"), reader)
    found = attention(Tagger(model, tiny.wordpiece(), ["O", "B-X"]), "a good film")
    assert set(found) == {"encoder", "layers"}
    assert found["layers"].probabilities.tolist() == [[[[1.0]]]]  # one layer
