import copy

import bilm_reference as bilm
import h5py
import numpy as np
import pytest
import tensorflow as tf
from checks import round_trip, same_outputs

from keras_transformers.families.elmo.files import load_elmo, read_elmo_options
from keras_transformers.families.elmo.model import elmo, features
from keras_transformers.layers.recurrent.cells import LSTMCell
from keras_transformers.tokenizers.characters import CharacterTokenizer

TEXTS = ["the cat sat on the mat", "überlängliche words", "", "a"]


def changed(**sections):
    options = copy.deepcopy(bilm.OPTIONS)
    for section, values in sections.items():
        options[section] |= values
    return options


def built(options, folder):
    path = bilm.write(folder, options, bilm.random_arrays(options))
    return elmo(**read_elmo_options(folder / "tiny_options.json"), dropout=0.0), path


def character_ids():
    return CharacterTokenizer(max_characters=9)(tf.constant(TEXTS))["character_ids"].numpy()


@pytest.mark.parametrize(
    "options",
    [
        bilm.OPTIONS,
        changed(lstm={"use_skip_connections": False, "cell_clip": 3, "proj_clip": 3}),
        changed(char_cnn={"activation": "tanh", "n_highway": 1, "n_characters": 261}),
    ],
    ids=["clipped", "without skips", "tanh"],
)
def test_loaded_weights_compute_what_bilm_computes(options, tmp_path):
    model, path = built(options, tmp_path)
    load_elmo(model, path)
    ids = character_ids()
    expected = bilm.layer_outputs(options, bilm.random_arrays(options), ids)
    outputs = model({"character_ids": ids})["layer_outputs"].numpy()
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    assert np.abs(expected).max() > 0.1


def test_both_clips_act_in_the_reference():
    ids, arrays = character_ids(), bilm.random_arrays(bilm.OPTIONS)
    as_is = bilm.layer_outputs(bilm.OPTIONS, arrays, ids)
    for clip in ("cell_clip", "proj_clip"):
        other = bilm.layer_outputs(changed(lstm={clip: 9}), arrays, ids)
        assert np.abs(as_is - other).max() > 1e-3, clip


def test_the_cell_is_tensorflows():
    """Gate order, forget bias and clip against TensorFlow 1's fused kernel, LSTMBlockCell."""
    random = np.random.default_rng(0)
    x, m, c = (random.normal(size=(2, n)).astype("float32") for n in (3, 5, 5))
    w, b = random.normal(size=(8, 20)).astype("float32"), random.normal(size=20).astype("float32")
    cell = LSTMCell(5, cell_clip=0.7)
    cell.build((None, 3))
    cell.input_projection.set_weights([w[:3], b])
    cell.recurrent_kernel.assign(w[3:])
    hidden, memory = cell(cell.input_projection(x), (m, c))
    nothing = tf.zeros(5)
    theirs = tf.raw_ops.LSTMBlockCell(
        x=x, cs_prev=c, h_prev=m, w=w, wci=nothing, wcf=nothing, wco=nothing, b=b, cell_clip=0.7
    )
    np.testing.assert_allclose(hidden, theirs.h, atol=1e-5)
    np.testing.assert_allclose(memory, theirs.cs, atol=1e-5)
    assert np.abs(theirs.cs).max() == pytest.approx(0.7)


@pytest.mark.slow
def test_a_model_on_top_loads_and_saves_its_encoder(tmp_path):
    model, path = built(bilm.OPTIONS, tmp_path)
    task = features(model)
    load_elmo(task, path)
    inputs = {"character_ids": character_ids()}
    other = elmo(**read_elmo_options(tmp_path / "tiny_options.json"))
    load_elmo(other, path, options=tmp_path / "tiny_options.json")
    same_outputs(model(inputs), other(inputs))
    same_outputs(task(inputs), round_trip(task, tmp_path)(inputs))


def test_options_json_beside_the_weights_is_found_by_its_plain_name(tmp_path):
    model, path = built(bilm.OPTIONS, tmp_path)
    (tmp_path / "tiny_options.json").rename(tmp_path / "options.json")
    load_elmo(model, path)
    (tmp_path / "options.json").unlink()
    with pytest.raises(FileNotFoundError, match="tiny_options.json.*options.json.*beside"):
        load_elmo(model, path)


def test_arrays_missing_misshapen_or_left_over_are_all_listed(tmp_path):
    model, path = built(bilm.OPTIONS, tmp_path)
    before = [weight.numpy() for weight in model.weights]
    with h5py.File(path, "a") as file:
        del file["CNN/b_cnn_1"]
        group = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell"
        del file[f"{group}/W_0"]
        file[f"{group}/W_0"] = np.zeros((8, 20), "float32")
        file["softmax/W"] = np.zeros(3, "float32")
    with pytest.raises(ValueError, match="does not fit") as error:
        load_elmo(model, path)
    for part in (
        "missing from the file: CNN/b_cnn_1",
        f"{group}/W_0 is (8, 20), backward_lstm_1/cell/input_projection/kernel and "
        "backward_lstm_1/cell/recurrent_kernel needs (8, 24)",
        "in the file but not used (name them in `ignore` to leave them out): softmax/W",
    ):
        assert part in str(error.value)
    for weight, old in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, old)
    with pytest.raises(ValueError, match="does not fit") as error:
        load_elmo(model, path, ignore=["softmax/*"])
    assert "softmax" not in str(error.value)


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        ("lstm", {"cell_clip": 5}, "cell_clip .*5 .*0.4"),
        ("lstm", {"use_skip_connections": False}, "use_skip_connections is False in .* but True"),
        ("lstm", {"dim": 7}, "lstm_dim .*7 .*6"),
        ("lstm", {"n_layers": 3}, "num_layers .*3 .*2"),
        ("char_cnn", {"activation": "tanh"}, "activation .*tanh .*relu"),
        ("char_cnn", {"max_characters_per_token": 50}, "max_characters .*50 .*9"),
        ("char_cnn", {"n_highway": 1}, "num_highways .*1 .*2"),
        ("char_cnn", {"filters": [[1, 3]]}, r"filters .*\[\(1, 3\)\]"),
    ],
)
def test_options_that_disagree_are_refused(section, change, message, tmp_path):
    model, path = built(bilm.OPTIONS, tmp_path)
    bilm.write(tmp_path, changed(**{section: change}), {})
    with pytest.raises(ValueError, match=message):
        load_elmo(model, path)


def test_files_that_are_no_files_of_bilm_are_refused(tmp_path):
    model, path = built(bilm.OPTIONS, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"none.hdf5 does not exist"):
        load_elmo(model, tmp_path / "none.hdf5")
    with pytest.raises(FileNotFoundError, match=r"none.json: no such file"):
        load_elmo(model, path, options=tmp_path / "none.json")
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="not a readable HDF5 file"):
        load_elmo(model, path)
    options = tmp_path / "tiny_options.json"
    for text, message in (
        ("{", "not JSON"),
        ("[]", "a JSON list, expected an object"),
        ('{"char_cnn": {}, "lstm": {}}', "has no field 'projection_dim'"),
    ):
        options.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_elmo_options(options)
    import keras

    bilm.write(tmp_path, bilm.OPTIONS, {})
    stranger = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="has no CharacterCNN"):
        load_elmo(stranger, path)
