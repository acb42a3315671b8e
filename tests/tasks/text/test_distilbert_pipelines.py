"""Every task's pipeline and export on DistilBERT, which has neither segments nor a pooler."""

import family_tasks
import pytest

from keras_transformers.families.distilbert.model import distilbert, with_pooler
from keras_transformers.tokenizers import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def pipelines():
    tokenizer = WordPieceTokenizer(
        [*SPECIAL, *["a", "film", "good", "bad", "two", "run", "very", "##s", ".", "!"]]
    )
    encoder = distilbert(
        vocabulary_size=15, num_layers=1, num_heads=2, hidden_dim=8, max_sequence_length=20
    )
    encoder = family_tasks.lively(with_pooler(encoder))
    return {task: make(encoder, tokenizer) for task, make in family_tasks.TASKS.items()}


@pytest.mark.parametrize("task", family_tasks.slow_but("fill_mask"))
def test_answers(pipelines, task, tmp_path):
    assert "segment_ids" not in pipelines[task].model.input
    family_tasks.answers_do_not_depend_on_the_batch(pipelines[task])
    family_tasks.it_comes_back(pipelines[task], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("task", family_tasks.TASKS)
def test_exports(pipelines, task, tmp_path):
    family_tasks.its_export_answers_alike(pipelines[task], tmp_path)
