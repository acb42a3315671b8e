"""`fit` and the recipe of a task train alike: with their defaults, to equal weights."""

import dataclasses
import runpy

import numpy as np
import pytest
import recipe_toys
from recipe_runs import file_of

import keras_transformers as kt
from keras_transformers.data.images.labelled_images import load_idx
from keras_transformers.data.text import few_of_each
from keras_transformers.runs import Run, execute
from keras_transformers.tasks.task import all_tasks, trainer_of

# Defaults that would take minutes; both train for as many epochs as this.
EPOCHS = {"image_classification": 3, "language_model": 3}
QUICK = {"classification"}


def paths(config):
    """The recipe's files, which `fit` reads too."""
    return config.train_file, config.dev_file


def labelled(config):
    """What the recipe reads: without the texts that occur twice."""
    train, dev, *_ = config.read()
    return [(part.texts, part.labels) for part in (train, dev)]


def first_paths(config):
    (train,), (dev,) = config.train_file, config.dev_file
    return train, dev


def drawn(config):
    train, dev, _, labels = config.read()
    few = few_of_each(train.with_one_label(), labels, config.texts_per_label, seed=config.seed)
    dev = dev.with_one_label()
    return [(list(part.texts), list(part.labels)) for part in (few, dev)]


def images(config):
    train, dev = load_idx(config.data)["train"].split(config.dev_fraction, seed=config.seed)
    return [(list(part.items), [str(label) for label in part.labels]) for part in (train, dev)]


def documents(config):
    texts = config.read()
    return texts["train"], texts["dev"]


def scored_pairs(config):
    train, dev, _ = config.read()
    return [(part.texts, part.texts_b, list(map(float, part.labels))) for part in (train, dev)]


def sick(folder):
    people = recipe_toys.PEOPLE * 3
    rows = [
        f"{i}\t{w} {v} in {c} .\t{v} in {c}\t{1 + i % 5}\tNEUTRAL"
        for i, (w, v, c) in enumerate(people)
    ]
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    (folder / "sick.txt").write_text("\n".join([head, *rows]) + "\n")
    files = {"train_file": folder / "sick.txt", "dev_file": folder / "sick.txt"}
    return recipe_toys.encoder(folder) | files | {"task": "sick_relatedness"}


# Recipe -> its toy, and what `fit` gets from its configuration.
ALIKE = {
    "classification": (recipe_toys.classification, labelled),
    "multi_label_classification": (recipe_toys.multi_label_classification, paths),
    "glue": (sick, scored_pairs),
    "tagging": (recipe_toys.tagging, paths),
    "question_answering": (recipe_toys.question_answering, paths),
    "multiple_choice": (recipe_toys.multiple_choice, paths),
    "embedding": (recipe_toys.embedding, first_paths),
    "image_classification": (recipe_toys.image_classification, images),
    "language_model": (recipe_toys.language_model, documents),
    "few_shot": (recipe_toys.few_shot, drawn),
}


# Recipes of tasks that read long texts in windows, here of seven tokens.
IN_WINDOWS = ("classification", "multi_label_classification", "glue", "embedding")
WINDOWS = {"long_texts": "windows", "max_sequence_length": 7}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "reading"),
    [
        *(
            pytest.param(name, {}, id=name, marks=[] if name in QUICK else pytest.mark.slow)
            for name in ALIKE
        ),
        *(
            pytest.param(name, WINDOWS, id=f"{name}-windows", marks=pytest.mark.slow)
            for name in IN_WINDOWS
        ),
    ],
)
def test_with_their_defaults_both_train_to_equal_weights(recipe, reading, tmp_path, monkeypatch):
    toy, data_of = ALIKE[recipe]
    module = runpy.run_path(str(file_of(recipe)))
    trained = {}
    prepare = Run.prepare

    def keep_start(run, model, batches, **arguments):
        trained["start"] = {v.path: np.array(v) for v in model.variables}
        return prepare(run, model, batches, **arguments)

    def keep_end(run, pipeline, *args, **kwargs):
        run.load_best()
        trained["pipeline"] = pipeline
        trained["weights"] = pipeline.model.get_weights()
        return {}

    monkeypatch.setattr(Run, "prepare", keep_start)
    monkeypatch.setattr(Run, "finish", keep_end)
    options = toy(tmp_path) | reading
    shared = {field.name for field in dataclasses.fields(kt.tasks.FitOptions)} - {"data"}
    options = {name: value for name, value in options.items() if name not in shared}
    same = {"epochs": EPOCHS[recipe]} if recipe in EPOCHS else {}
    task = all_tasks().get(recipe)
    few_shot = {"few_shot": True} if recipe == "few_shot" else {}
    if calibrates := task is not None and task.trainer().calibrates:
        same |= {"calibrate": True, "abstain_below": 0.6}
    config = module["Config"](**options, **same, runs_dir=tmp_path / "runs", quiet=True)
    execute(module["main"], config)

    pipeline = trained["pipeline"]
    config_before = pipeline.config()
    assert getattr(pipeline, "reads_windows", False) == bool(reading)
    trainer = trainer_of(pipeline)
    assert type(config).epochs == (trainer.few_shot() if few_shot else trainer).options.epochs
    head = set()
    if few_shot:  # whose model has no head, which is solved for
        head = {x.path for x in pipeline.model.get_layer("logits").variables}
        head |= {x.path for x in pipeline.model.get_layer("classifier_dropout").variables}
        for variable in pipeline.model.get_layer("logits").variables:
            variable.assign(np.zeros(variable.shape))
    for variable in pipeline.model.variables:
        if variable.path not in head:
            variable.assign(trained["start"][variable.path])
    untrained = pipeline.model.get_weights()
    data, validation = data_of(config)
    kt.fit(pipeline, data, validation=validation, quiet=True, **same, **few_shot)
    for before, one, other in zip(
        untrained, pipeline.model.get_weights(), trained["weights"], strict=True
    ):
        assert np.array_equal(one, other)
        assert not np.array_equal(before, one) or not before.any() or before.size == 1
    if calibrates and recipe != "image_classification":  # which keeps the last epoch
        assert pipeline.config() == config_before
