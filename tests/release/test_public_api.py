"""A change to a public name or signature is a decision: the list of them is kept, and compared."""

import difflib

import pytest
from public_api import FILE, HEADER, lines

import keras_transformers as kt


@pytest.fixture(scope="module")
def listed() -> list[str]:
    return lines()


def test_the_public_api_is_the_kept_one(listed):
    kept = FILE.read_text("utf-8").splitlines()
    changes = list(difflib.unified_diff(kept, [HEADER, *listed], n=0, lineterm=""))[3:]
    assert not changes, (
        "the public API changed. If you mean it, see docs/versions.md for what the change asks of "
        "the version, run `make api`, and add the change to CHANGELOG.md:\n" + "\n".join(changes)
    )


def test_no_line_is_repeated(listed):
    assert len(set(listed)) == len(listed)


def test_models_fields_inherited_ones_and_options_are_listed(listed):
    starts = {line.partition("(")[0] for line in listed}
    assert {f"kt.{name}" for name in kt.list_models()} <= starts
    for line in (
        "kt.pipelines.TextClassifier: class(LongTextPipeline)",
        "kt.pipelines.Classification.label: str",
        "kt.data.LabelledFiles.train_file: Path",  # of a private base
        "keras-transformers train classification.pooling: Literal['cls', 'mean'] = 'cls'",
        "keras-transformers list.json: bool = False",
    ):
        assert line in listed
