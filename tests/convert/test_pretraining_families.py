"""Every family that `load_pretrainer` offers can be written when its training ends."""

import json

import numpy as np
import pytest

import keras_transformers as kt
from keras_transformers.convert.families import encoders
from keras_transformers.tasks.pretraining import weights as pretraining

OFFERED = [family for family in encoders() if pretraining._can_learn(family)]


def test_families_without_a_place_for_the_heads_are_not_offered():
    assert {"bert", "modernbert"} <= {family.model_type for family in OFFERED}
    assert not {"albert", "electra", "roberta"} & {family.model_type for family in OFFERED}


@pytest.mark.parametrize("family", OFFERED, ids=lambda family: family.model_type)
def test_an_offered_family_is_saved_and_goes_on(family, tmp_path, caplog):
    options = {"vocabulary_size": 50, "max_sequence_length": 16}
    model = kt.convert.load_pretrainer(
        model=next(iter(family.entries)),
        shape={"num_layers": 1, "num_heads": 2, "hidden_dim": 16},
        **options,
    )
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(45))]
    kt.convert.save_weights(model, tmp_path, kt.tokenizers.WordPieceTokenizer(words))
    assert kt.convert.pretrained_tokenizer(tmp_path, 16).vocabulary_size == 50
    again = kt.convert.load_pretrainer(weights=tmp_path, **options)
    assert again.output.keys() == model.output.keys()
    for one, other in zip(again.weights, model.weights, strict=True):
        assert (one.numpy() == other.numpy()).all(), one.path
    (class_name,) = json.loads((tmp_path / "config.json").read_text())["architectures"]
    assert class_name.lower().startswith(f"{family.model_type}for")
    fill = kt.load(tmp_path)
    assert type(fill).__name__ == "MaskFiller"
    assert "random" not in caplog.text
    ids = [[2, 7, 4, 9, 3]]
    given = {"token_ids": ids, "padding_mask": [[True] * 5], "mask_positions": [[2]]}
    given |= {"segment_ids": [[0] * 5]} if "segment_ids" in model.input else {}
    given = {name: np.array(value) for name, value in given.items()}
    expected = model(given)["mask_logits"]
    np.testing.assert_array_equal(fill.model(given)["mask_logits"], expected)
