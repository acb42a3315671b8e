"""The signature `tokenize`: what the model of each task really reads."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
from graph_checks import string_nodes

from keras_transformers.tasks.pipeline import Pipeline

# No tokens: pixels, and characters of words.
READERS = [task for task in tiny.TASKS if task not in ("image_classification", "word_embedding")]


def by_row(outputs):
    """The tokens of each row, whose padding is checked."""
    ids, names, counts = (outputs[name].numpy() for name in ("token_ids", "tokens", "num_tokens"))
    assert ids.dtype == counts.dtype == np.int32
    for row, count in enumerate(counts):
        assert (names[row, :count] != b"").all()
        assert (names[row, count:] == b"").all()
    return [list(row[:count]) for row, count in zip(ids, counts, strict=True)]


@pytest.fixture
def read_by_model(monkeypatch):
    """What the model reads of a batch: a pipeline and its inputs -> real tokens, sorted."""

    def read(pipeline, batch):
        seen = []
        run = Pipeline.run_model
        start = getattr(type(pipeline.model), "start_decoding", None)

        def run_model(self, inputs):
            ids, mask = inputs["token_ids"].numpy(), inputs["padding_mask"].numpy()
            seen.extend(ids[mask])
            return run(self, inputs)

        def start_decoding(self, token_ids, mask=None, **options):
            real = token_ids.numpy() != pipeline.tokenizer.pad_token_id
            seen.extend(token_ids.numpy()[real if mask is None else mask.numpy()])
            return (
                start(self, token_ids, mask, **options)
                if mask is not None
                else start(self, token_ids, **options)
            )

        with monkeypatch.context() as patch:
            patch.setattr(Pipeline, "run_model", run_model)
            if start is not None:
                patch.setattr(type(pipeline.model), "start_decoding", start_decoding)
            pipeline.answer(**{name: tf.constant(column) for name, column in batch.items()})
        return sorted(seen)

    return read


@pytest.mark.one_case
@pytest.mark.parametrize("task", READERS)
def test_the_tokens_are_those_that_the_model_reads(task, read_by_model):
    pipeline = tiny.pipeline(task)
    signature = pipeline.signatures()["tokenize"]
    assert signature.inputs == pipeline.input_specs()
    vocabulary = list(pipeline.tokenizer.vocabulary)
    most = 0
    for batch in signature.examples:
        outputs = signature.function(**{n: tf.constant(c, tf.string) for n, c in batch.items()})
        rows = by_row(outputs)
        assert len(rows) == len(next(iter(batch.values())))
        assert sorted(token for row in rows for token in row) == read_by_model(pipeline, batch)
        for ids, names in zip(rows, outputs["tokens"].numpy(), strict=True):
            assert [name.decode() for name in names[: len(ids)]] == [vocabulary[i] for i in ids]
        most = max([most, *map(len, rows)])
    assert most > 2


def test_a_row_has_its_own_tokens_in_the_order_in_which_the_model_reads_them():
    pipeline = tiny.pipeline("reranking")
    tokenize = pipeline.signatures()["tokenize"].function
    query, documents = tf.constant(["a film", "good"]), tf.constant([["bad", ""], ["a", "long"]])
    names = tokenize(text=query, documents=documents)["tokens"].numpy().tolist()
    assert names[0] == b"[CLS] a film [SEP] bad [SEP]".split() + [b""] * 4
    assert names[1] == b"[CLS] good [SEP] a [SEP] [CLS] good [SEP] long [SEP]".split()


@pytest.mark.parametrize("task", ["image_classification", "word_embedding"])
def test_what_reads_no_tokens_has_no_such_signature(task):
    assert "tokenize" not in tiny.pipeline(task).signatures()


@pytest.mark.slow
@pytest.mark.parametrize("task", tiny.TASKS)
def test_every_export_processes_strings_on_the_cpu(task):
    nodes = list(string_nodes(tiny.exported(task)))
    assert nodes
    free = {node.op for node in nodes if "device:CPU" not in node.device}
    assert free <= {"While"}  # decoding passes stop strings to its steps, whose nodes have devices
