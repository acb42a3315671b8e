"""What a run writes for TensorBoard besides its curves, read back from its files."""

import dataclasses
import json
import logging
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from checks import says
from google.protobuf import text_format
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugin_util import markdown_to_safe_html
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.plugins.projector import ProjectorConfig
from tensorboard.plugins.projector.metadata import PROJECTOR_FILENAME

from keras_transformers import heads, pipelines, runs
from keras_transformers.data.text import Examples, TextBatches
from keras_transformers.evaluation.reports.classification import classification_report
from keras_transformers.runs.board import epochs, final
from keras_transformers.runs.board.tables import markdown_table
from keras_transformers.runs.callbacks import standard_callbacks
from keras_transformers.runs.options import Logging
from keras_transformers.runs.resume.callback import Resume

EXAMPLES = Examples(
    ["a good film", "bad | very", "a film"], None, ["positive", "negative", "positive"]
)
ALL = {
    "tensorboard_samples": 2,
    "tensorboard_attention": True,
    "tensorboard_histograms": True,
    "tensorboard_embeddings": 7,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(runs.Options):
    name: str = "task"
    epochs: int = 2
    learning_rate: float = 0.01
    labels: tuple[str, ...] = ("negative", "positive")
    weights: Path | None = None
    quiet: bool = True


@pytest.fixture(scope="module")
def classifier():
    return tiny.pipeline("classification")


@pytest.fixture(scope="module")
def board(classifier, tmp_path_factory):
    """The folder of two epochs, of which the second was repeated."""
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[translation]")
    folder = tmp_path_factory.mktemp("board")
    callback = epochs.EpochSummaries(folder, Logging(**ALL))
    callback.set_model(classifier.model)
    callback.source = TextBatches(EXAMPLES, classifier, batch_size=2)
    callback.on_train_begin()
    for epoch in (0, 1, 1):
        callback.on_epoch_end(epoch)
    return folder


def events(folder):
    """Returns (tag, step) -> the value's tensor; each must be there once."""
    found = {}
    for path in sorted(folder.glob("*.tfevents.*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                assert (value.tag, event.step) not in found
                found[value.tag, event.step] = tf.make_ndarray(value.tensor)
    return found


def table(found, step):
    return found["samples", step].item().decode().split("\n")


def test_each_epoch_has_the_answers_to_the_first_examples(board):
    found = events(board)
    assert {step for _, step in found} == {0, 1}
    heading, _, *rows = table(found, 1)
    assert heading == "| text | expected | answer: label | answer: probabilities |"
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| a good film", "positive"],
        [r"| bad \| very", "negative"],
    ]


def test_attention_is_drawn(board):
    found = events(board)
    for name in ("last layer", "all heads"):
        width, height, png = found[f"attention/encoder, {name}", 1]
        pixels = tf.io.decode_png(png).numpy()
        assert pixels.shape == (int(height), int(width), 3)
        assert len(np.unique(pixels)) > 20


def test_every_weight_has_a_histogram(board, classifier):
    found = events(board)
    for weight in classifier.model.trainable_variables:
        buckets = found[weight.path, 1]  # (buckets, left edge, right edge and count)
        assert buckets[:, 2].sum() == np.prod(weight.shape)
    assert len(found) == 2 * (3 + len(classifier.model.trainable_variables))


@pytest.fixture(scope="module")
def finished(classifier, tmp_path_factory):
    """The folder of a finished run, which was finished once before."""
    folder = tmp_path_factory.mktemp("run") / "final"
    figures = {"dev_f1": 0.5, "chosen": "last", "nan": float("nan"), "is": True, "by": [1.0]}
    for _ in range(2):
        final.write_final(folder, Config(), figures, classifier, num_embeddings=7)
    return folder


def test_options_stand_beside_scores(finished):
    boards = EventAccumulator(str(finished))
    boards.Reload()
    started = "_hparams_/session_start_info"
    assert boards.Tags()["tensors"] == [started, "dev_f1"]
    content = boards.SummaryMetadata(started).plugin_data.content
    options = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert options["epochs"].number_value == 2
    assert json.loads(options["labels"].string_value) == ["negative", "positive"]
    assert not {"name", "runs_dir"} & set(options)  # places change no score
    assert not {"weights", "quiet", "tensorboard_samples"} & options.keys()


def test_reports_are_text_and_pictures(tmp_path):
    report = classification_report([[0.9, 0.1]] * 3, [0, 1, 0], ["a", "b"], texts=["x$", "y", "z"])
    final.write_final(tmp_path, Config(), {}, None, num_embeddings=0, reports={"dev": report})
    found = events(tmp_path)
    lines = found["report/dev", 0].item().decode().splitlines()
    assert lines == [f"    {line}" for line in str(report).splitlines()]
    for name in report.pictures:
        width, height, png = found[f"report/dev, {name}", 0]
        pixels = tf.io.decode_png(png).numpy()
        assert pixels.shape == (int(height), int(width), 3)
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20


def test_embeddings_have_their_tokens(finished, classifier):
    config = text_format.Parse((finished / PROJECTOR_FILENAME).read_text(), ProjectorConfig())
    (embedding,) = config.embeddings
    vectors = np.loadtxt(finished / embedding.tensor_path)
    table = classifier.model.get_layer("token_embedding").embeddings.numpy()
    np.testing.assert_allclose(vectors, table[:7], rtol=1e-5)
    tokens = (finished / embedding.metadata_path).read_text("utf-8").splitlines()
    assert tokens == list(tiny.VOCABULARY[:7])


def test_only_the_chief_writes(tmp_path, monkeypatch):
    files = {"last": "a.weights.h5", "best": "b.weights.h5", "monitor": None}

    def made():
        found = standard_callbacks(tmp_path, Logging(quiet=True), **files)
        return [each for each in found if isinstance(each, epochs.EpochSummaries)]

    assert len(made()) == 1
    cluster = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    assert not made()


def train(runs_dir, **options):
    """Runs a toy to its end; returns its folder and weights."""
    config = Config(runs_dir=runs_dir, **options)
    run = runs.Run(config)
    model = heads.classifier(tiny.encoder(), 2, dropout=0.5)
    classify = pipelines.TextClassifier(model, tiny.wordpiece(), list(config.labels))
    batches = TextBatches(EXAMPLES, classify, batch_size=1)
    model.compile(
        keras.optimizers.Adam(config.learning_rate),
        {"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
        jit_compile=False,
    )
    model.fit(**run.prepare(model, batches, validation=batches.of(EXAMPLES)))
    run.finish(classify, {"dev_f1": 0.5})
    return run.folder / "tensorboard", model.get_weights()


@pytest.mark.slow
def test_a_stopped_run_goes_on_as_one_that_writes_nothing(tmp_path, monkeypatch):
    """Killed before the checkpoint of an epoch, it has written that epoch already."""
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[translation]")
    save = Resume.on_epoch_end

    def killed(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt
        save(self, epoch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(Resume, "on_epoch_end", killed)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, **ALL)
    before = events(tmp_path / "task/tensorboard/epochs")
    folder, weights = train(tmp_path, resume=True, **ALL)
    found = events(folder / "epochs")
    assert found.keys() == before.keys() == {(tag, step) for tag, _ in found for step in (0, 1)}
    assert table(found, 1) == table(before, 1) != table(found, 0)
    assert (folder / "final/tensors.tsv").is_file()
    silent, others = train(tmp_path, name="silent", tensorboard_samples=0)
    assert not (silent / "epochs").exists()
    for mine, other in zip(weights, others, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_table_shows_texts_as_they_are():
    cells = ["a|b", "<b>*x*</b> & `y`", r"\_[1](2)", "two\nlines", "~ # 1. x"]
    html = markdown_to_safe_html(markdown_table({"text": cells}).encode())
    shown = ["a|b", "&lt;b&gt;*x*&lt;/b&gt; &amp; `y`", r"\_[1](2)", "two lines", "~ # 1. x"]
    assert [line[4:-5] for line in html.splitlines() if line.startswith("<td>")] == shown


@pytest.mark.slow
@pytest.mark.parametrize("task", tiny.TASKS)
def test_every_task_has_a_table(task):
    samples = epochs.first_samples(tiny.pipeline(task), 2)
    lines = epochs.answers_table(samples).split("\n")
    assert len(lines) == 4
    assert " answer: " in lines[0]
    assert all(len(line) < 2000 for line in lines)


def test_what_a_model_lacks_is_reported(tmp_path, caplog):
    images = tiny.pipeline("image_classification")
    words = tiny.pipeline("word_embedding")
    log = Logging(tensorboard_samples=0, tensorboard_attention=True)
    callback = epochs.EpochSummaries(tmp_path / "epochs", log)
    callback.set_model(words.model)
    callback.source = words
    callback.on_train_begin()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            callback.on_epoch_end(0)
        final.write_final(tmp_path / "final", Config(), {}, images, num_embeddings=5)
    assert caplog.text.count("elmo has no attention") == 1
    assert says(caplog.text, "no embeddings ... ImageClassifier")
    assert not (tmp_path / "final/tensors.tsv").exists()
