"""The helper for other libraries' files."""

import keras
import numpy as np
import pytest
from left_behind import VARIABLE, difference, same_outputs, unpacked


def test_without_the_folder_of_archives_there_are_the_golden_ones(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert (unpacked("hf4_tf/bert_pre", tmp_path) / "tf_model.h5").is_file()
    with pytest.raises(pytest.skip.Exception, match=f"hf4_tf/no_such: set {VARIABLE} to"):
        unpacked("hf4_tf/no_such", tmp_path)


def test_a_difference_is_measured_at_real_tokens(tmp_path):
    inputs = {
        "token_ids": keras.Input((2,), name="token_ids"),
        "padding_mask": keras.Input((2,), dtype="bool", name="padding_mask"),
    }
    model = keras.Model(inputs, {"logits": 2 * inputs["token_ids"]})
    ids, mask = np.array([[1.0, 4.0]]), np.array([[1, 1]])
    file = tmp_path / "model.npz"
    np.savez(file, in_input_ids=ids, in_attention_mask=mask, out_logits=np.array([[2.0, 8.004]]))
    assert difference(model, file) == pytest.approx(0.004 / 8.004, rel=1e-2)
    with pytest.raises(AssertionError, match="model: differs by 0.0005"):
        same_outputs(model, file)
    np.savez(file, in_input_ids=ids, in_attention_mask=mask, out_other=ids)
    with pytest.raises(AssertionError, match=r"model\.npz.*logits"):
        difference(model, file)
