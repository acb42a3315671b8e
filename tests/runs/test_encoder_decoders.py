"""The options that encoder-decoder recipes share."""

import dataclasses

import keras
import pytest

from keras_transformers.models.registry import create_model
from keras_transformers.runs import EncoderDecoderTraining, Run
from keras_transformers.runs.callbacks import standard_callbacks


def test_a_transformer_has_its_norms_in_front_and_one_kind_of_dropout():
    arguments = EncoderDecoderTraining().model_arguments(300)
    assert arguments == {
        "vocabulary_size": 300,
        "max_sequence_length": 128,
        "dropout": 0.3,
        "norm_position": "pre",
        "attention_dropout": 0.0,
        "feed_forward_dropout": 0.0,
    }
    other = EncoderDecoderTraining(model_options={"norm_position": "post"}).model_arguments(300)
    assert other == arguments | {"norm_position": "post"}


def test_other_families_keep_their_own_defaults():
    config = EncoderDecoderTraining(model="seq2seq_multi30k", dropout=0.5)
    assert config.model_arguments(300) == {
        "vocabulary_size": 300,
        "max_sequence_length": 128,
        "dropout": 0.5,
    }


def test_the_ratio_of_teacher_forcing_reaches_model_and_schedule():
    fast = EncoderDecoderTraining(model="seq2seq_multi30k")
    assert "teacher_forcing" not in fast.model_arguments(300)
    average = keras.callbacks.Callback()
    assert fast.monitoring("val_bleu", 10, [average])["callbacks"] == [average]
    slow = dataclasses.replace(fast, teacher_forcing=0.5, teacher_forcing_decay="linear", epochs=4)
    assert slow.model_arguments(300)["teacher_forcing"] == 0.5
    options = slow.monitoring("val_bleu", 10, [average])
    schedule, last = options["callbacks"]
    assert last is average
    assert [schedule.ratio(step) for step in (0, 20, 40)] == [1.0, 0.75, 0.5]


def test_weights_to_average_are_an_epoch_or_some_batches_apart():
    config = EncoderDecoderTraining(average=20)
    assert (config.averaging().num_kept, config.averaging().frequency) == (20, "epoch")
    config = dataclasses.replace(config, average_every=6, warmup_steps=1)
    assert config.averaging().frequency == 6
    with pytest.raises(ValueError, match="6:.*epoch.*5 updates"):
        config.optimizer(5)
    with pytest.raises(ValueError, match="average-every and --ema"):
        config.optimizer(6, ema=0.999)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_options": {"depth": 3}},
            "transformer_tiny .*'depth'.*vocabulary_size",
        ),
        ({"teacher_forcing": 0.5}, "transformer_tiny takes no argument 'teacher_forcing'"),
        (
            {"model": "seq2seq_multi30k", "teacher_forcing": 1.5},
            "teacher_forcing=1.5 is not between 0 and 1",
        ),
        (
            {"model": "seq2seq_multi30k", "teacher_forcing": -0.5},
            "teacher_forcing=-0.5 is not between 0 and 1",
        ),
        ({"teacher_forcing_decay": "linear"}, "--teacher-forcing, which is 1: use a lower one"),
        (
            {"model_options": {"dropout": 0.1, "vocabulary_size": 5}},
            "--model-options dropout, vocabulary_size: the recipe sets this",
        ),
        (
            {"model_options": {"teacher_forcing": 0.5, "pad_token_id": 5}},
            "--model-options pad_token_id, teacher_forcing: the recipe sets this",
        ),
        ({"model": "transformer_huge"}, "'transformer_huge' .*did you mean"),
    ],
)
def test_wrong_options_are_named(changes, message):
    config = EncoderDecoderTraining(**changes)
    with pytest.raises(ValueError, match=message):
        create_model(config.model, **config.model_arguments(300))


def test_training_stops_where_the_figure_that_decides_gets_no_higher(tmp_path):
    config = EncoderDecoderTraining(patience=3, runs_dir=tmp_path)
    monitor = config.monitoring("val_bleu", 10)["monitor"]
    names = {"last": "last.weights.h5", "best": "best.weights.h5", "monitor": monitor}
    callbacks = standard_callbacks(tmp_path, config, **names, patience=config.patience)
    (stopping,) = [x for x in callbacks if isinstance(x, keras.callbacks.EarlyStopping)]
    assert (stopping.monitor, stopping.mode, stopping.patience) == ("val_bleu", "max", 3)


def test_a_run_resumes_with_the_same_model_options_only(tmp_path):
    config = EncoderDecoderTraining(runs_dir=tmp_path, name="first")
    Run(config).make_folder()
    assert Run(dataclasses.replace(config, resume=True)).folder == tmp_path / "first"
    with pytest.raises(ValueError, match="model_options was {}, is {'norm_position': 'post'}"):
        Run(dataclasses.replace(config, resume=True, model_options={"norm_position": "post"}))


def test_a_warm_up_that_is_longer_than_the_training_is_refused():
    config = EncoderDecoderTraining(decay="linear", warmup_steps=61, epochs=3)
    with pytest.raises(ValueError, match=r"--warmup-steps 61: .* only 60 updates, 3 epochs of 20"):
        config.optimizer(20)
    dataclasses.replace(config, decay="inverse_sqrt").optimizer(20)
    dataclasses.replace(config, warmup_steps=60).optimizer(20)


@pytest.mark.parametrize(("epochs", "peak"), [(3, 30), (150, 2000)])
def test_the_default_warm_up_fits_the_training(epochs, peak):
    config = EncoderDecoderTraining(decay="linear", epochs=epochs)
    optimizer, rates = config.optimizer(20), []
    for step in (peak - 2, peak - 1, peak):
        optimizer.iterations.assign(step)
        rates.append(float(optimizer.learning_rate))
    assert rates[1] == max(rates) == pytest.approx(config.learning_rate, rel=1e-3)
