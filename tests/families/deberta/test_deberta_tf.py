"""Folders of DeBERTa's TensorFlow classes in transformers 4: the outputs are theirs."""

import numpy as np
import pytest
from left_behind import same_outputs

import keras_transformers as kt
from keras_transformers.families.deberta.files import FAMILY as DEBERTA
from keras_transformers.families.deberta.model import deberta

SERVED = [
    ("cls", "TextClassifier", {}),
    ("cls", "ZeroShotClassifier", {"pipeline": "zero_shot_classification"}),
    ("cls_safe", "TextClassifier", {}),
    ("tok", "Tagger", {}),
    ("qa", "QuestionAnswerer", {"max_question_length": 6, "doc_stride": 4}),
    ("mlm", "MaskFiller", {}),
]


@pytest.mark.parametrize(("name", "pipeline", "options"), SERVED)
def test_a_folder_gives_the_outputs_of_its_class(name, pipeline, options, left_behind):
    loaded = kt.load(left_behind(f"hf4_tf_deberta/{name}"), **options)
    assert type(loaded).__name__ == pipeline
    same_outputs(loaded.model, left_behind(f"hf4_tf_deberta/{name}.npz"))


def test_a_convolution(left_behind):
    folder = left_behind("hf4_tf_deberta/conv")
    model = deberta(**DEBERTA.read(folder))
    kt.convert.load_weights(model, folder)
    same_outputs(model, left_behind("hf4_tf_deberta/conv.npz"))


def test_labels_are_scored_without_training(left_behind):
    """Zero-shot classification with any labels: what most published models are for."""
    classify = kt.load(
        left_behind("hf4_tf_deberta/cls"),
        pipeline="zero_shot_classification",
    )
    answer = classify("two dogs run", ["film", "dogs"])
    assert answer.label == ["film", "dogs"][answer.label_index]
    np.testing.assert_allclose(sum(answer.probabilities), 1.0, atol=1e-6)
