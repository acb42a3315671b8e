"""Every task's pipeline and export on XLM-RoBERTa: SentencePiece in the graph."""

import family_tasks
import pytest
import xlm_roberta_toy

from keras_transformers.families.roberta.model import roberta


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory):
    tokenizer = xlm_roberta_toy.tokenizer(tmp_path_factory.mktemp("xlm_roberta"))
    encoder = roberta(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        max_sequence_length=24,
    )
    encoder = family_tasks.lively(encoder)
    return {task: make(encoder, tokenizer) for task, make in family_tasks.TASKS.items()}


@pytest.mark.parametrize("task", family_tasks.slow_but("fill_mask"))
def test_answers(pipelines, task, tmp_path):
    family_tasks.answers_do_not_depend_on_the_batch(pipelines[task])
    family_tasks.it_comes_back(pipelines[task], tmp_path)


@pytest.mark.slow
def test_spans_are_those_of_the_text(pipelines):
    text = "Ada Lovelace, in Zürich: 東京!"
    tags = pipelines["tagging"](text)
    assert list(tags.tokens) == ["Ada", "Lovelace", ",", "in", "Zürich", ":", "東", "京", "!"]
    spans = zip(tags.starts, tags.ends, strict=True)
    assert [text[start:end] for start, end in spans] == list(tags.tokens)
    answer = pipelines["question_answering"]("who?", text)
    assert answer.text == text[answer.start : answer.end]


@pytest.mark.slow
@pytest.mark.parametrize("task", family_tasks.TASKS)
def test_exports(pipelines, task, tmp_path):
    family_tasks.its_export_answers_alike(pipelines[task], tmp_path)
