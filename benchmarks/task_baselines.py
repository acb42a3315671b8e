"""Computes baselines without a neural network for the recipes' tasks.

    python benchmarks/task_baselines.py DATA

where DATA contains sst2/, mrpc/, sick/, conll2003/, xquad/ and nltk/rte.zip. The splits are those
on which the recipes measure their models (the `read` of their options). Needs scikit-learn.

- majority: the most frequent label of the training set.
- bag of words: logistic regression, or ridge regression for scores, on TF-IDF of words and bigrams.
  For pairs of texts: on the words of both, those they share and those they do not, and the cosine
  of the two.
- entity types: the types of entities in a sentence of CoNLL; the majority is the most frequent one.
- CoNLL: each word's most frequent label in training, O for other words: the shared task's own
  baseline except for names of several words. The majority, O everywhere, finds no entity.
- XQuAD: in the sentence that shares the most words with the question, the first run of capitalised
  words or numbers that the question does not contain.
"""

import collections
import re
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from keras_transformers.data.text import (
    Examples,
    GlueTask,
    LabelSets,
    Questions,
    Sentences,
    glue_task,
    to_iob2,
)
from keras_transformers.evaluation import (
    best_thresholds,
    entity_scores,
    glue_scores,
    multi_label_scores,
    squad_scores,
)

RECIPES = Path(__file__).parents[1] / "recipes"
GLUE_FILES = {
    "mrpc": "mrpc/msr_paraphrase_train.txt.gz",
    "rte": "nltk/rte.zip",
    "sick_entailment": "sick/SICK_train.txt.gz",
    "sick_relatedness": "sick/SICK_train.txt.gz",
}


def main(data: Path) -> None:
    """Prints one line per baseline and task."""
    sst2 = {"train_file": data / "sst2/train.tsv.gz", "dev_file": data / "sst2/dev.tsv.gz"}
    train, dev, *_ = read("classification", **sst2)
    report("sst2", texts(glue_task("sst2"), train, dev))
    for name, file in GLUE_FILES.items():
        train, dev, _ = read("glue", task=name, train_file=data / file)
        report(name, texts(glue_task(name), train, dev))
    files = {"train_file": "eng.train.gz", "dev_file": "eng.testa.gz"}
    conll = {option: data / "conll2003" / name for option, name in files.items()}
    sets = {"train_file": conll["train_file"], "test_file": conll["dev_file"], "conll": True}
    report("entity types", types(*read("multi_label_classification", **sets)))
    train, dev, *_ = read("tagging", **conll)
    report("conll2003", tags(train, dev))
    _, dev, _ = read("question_answering", train_file=data / "xquad/xquad.en.json.gz")
    report("xquad", answers(dev))


def read(recipe: str, **options: Any) -> tuple[Any, ...]:
    """Returns the data as a recipe splits it."""
    module = runpy.run_path(str(RECIPES / f"{recipe}.py"))
    return module["Config"](**options).read()


def report(task: str, scores: Mapping[str, Mapping[str, float]]) -> None:
    """Prints the scores of each baseline."""
    for baseline, figures in scores.items():
        found = ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
        print(f"{task:16} {baseline:13} {found}", flush=True)


def texts(task: GlueTask, train: Examples, dev: Examples) -> dict[str, Mapping[str, float]]:
    """Scores majority and bag of words, for labels or for scores."""
    features = [bags(train, dev, part) for part in (train, dev)]
    if task.is_regression:
        targets, references = (np.array([float(x) for x in e.labels]) for e in (train, dev))
        found = Ridge(alpha=1.0).fit(features[0], targets).predict(features[1])
        return {"bag of words": glue_scores(task.metrics, found, references)}
    targets, references = (np.array([task.labels.index(x) for x in e.labels]) for e in (train, dev))
    majority = np.full(len(dev), np.bincount(targets).argmax())
    model = LogisticRegression(C=4.0, max_iter=2000).fit(features[0], targets)
    predictions = {"majority": majority, "bag of words": model.predict(features[1])}
    return {
        name: glue_scores(task.metrics, found, references) for name, found in predictions.items()
    }


def types(
    train: LabelSets, dev: LabelSets, test: LabelSets, labels: list[str]
) -> dict[str, Mapping[str, float]]:
    """Scores the most frequent label, and a bag of words with thresholds chosen on dev."""
    shares = train.matrix(labels).mean(axis=0, dtype="float64")
    frequent = np.broadcast_to(shares == shares.max(), (len(test), len(labels)))
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    features = vectorizer.fit_transform(train.texts)
    found = []
    for column in train.matrix(labels).T:
        model = LogisticRegression(C=4.0, max_iter=2000).fit(features, column)
        parts = (vectorizer.transform(part.texts) for part in (dev, test))
        found.append([model.predict_proba(part)[:, 1] for part in parts])
    on_dev, on_test = (np.stack(columns, axis=1) for columns in zip(*found, strict=True))
    thresholds = best_thresholds(on_dev, dev.matrix(labels))
    expected = test.matrix(labels)
    return {
        "majority": multi_label_scores(frequent, expected),
        "bag of words": multi_label_scores(on_test, expected, thresholds=thresholds),
    }


def bags(train: Examples, dev: Examples, part: Examples) -> Any:
    """Returns TF-IDF of `part`, fitted to the training texts."""
    corpus = [*train.texts, *(train.texts_b or [])]
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit(corpus)
    first = vectorizer.transform(part.texts)
    if part.texts_b is None:
        return first
    second = vectorizer.transform(part.texts_b)
    shared = first.multiply(second)
    cosine = scipy.sparse.csr_matrix(shared.sum(axis=1))
    return scipy.sparse.hstack([first + second, shared, abs(first - second), cosine]).tocsr()


def tags(train: Sentences, dev: Sentences) -> dict[str, Mapping[str, float]]:
    """Scores the entities from each word's most frequent label."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for words, labels in zip(train.words, train.labels or [], strict=True):
        for word, label in zip(words, labels, strict=True):
            counts[word][label] += 1
    best = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    predictions = [[best.get(word, "O") for word in words] for words in dev.words]
    score = entity_scores([to_iob2(row) for row in predictions], dev.labels).overall
    figures = {"precision": score.precision, "recall": score.recall, "f1": score.f1}
    return {"word's label": figures}


def answers(dev: Questions) -> dict[str, Mapping[str, float]]:
    """Scores a rule by exact match and F1."""
    found = {
        key: rule(question, dev.contexts[context])
        for key, question, context in zip(dev.ids, dev.questions, dev.context_of, strict=True)
    }
    score = squad_scores(found, dev.references())
    return {"rule": {"exact_match": score.exact_match, "f1": score.f1}}


def rule(question: str, context: str) -> str:
    """Returns a name or number from the sentence that shares the most words with the question."""
    asked = set(words(question))
    sentences = re.split(r"(?<=[.!?])\s+", context)
    best = max(sentences, key=lambda sentence: len(asked & set(words(sentence))))
    for run in re.findall(r"(?:[A-Z][\w'-]*|\d[\d.,]*)(?: (?:[A-Z][\w'-]*|\d[\d.,]*))*", best):
        if not asked & set(words(run)):
            return run
    return best


def words(text: str) -> Sequence[str]:
    """Returns lower-cased words."""
    return re.findall(r"\w+", text.lower())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
