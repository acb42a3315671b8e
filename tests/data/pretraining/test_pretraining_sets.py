"""Documents to a folder with a vocabulary and records, and records to batches."""

import itertools
import json
import shutil

import numpy as np
import pytest

from keras_transformers.data.pretraining.batches import read_documents
from keras_transformers.data.pretraining.sets import PretrainingSets, make_sets, read_text

LENGTH = 16


def documents():
    return [
        [f"number {number} is near number {number + i}" for i in range(1, 5)]
        for number in range(60)
    ]


def make(folder, texts=None, **changes):
    options = {
        "lengths": [LENGTH],
        "dev_fraction": 0.2,
        "vocabulary_size": 90,
        "dupe_factor": 2,
    } | changes
    return make_sets(documents() if texts is None else texts, folder, **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets") / "new"
    return make(folder)


def test_a_document_is_in_one_of_both_parts(made):
    train, dev = (list(read_documents(made.folder / f"{p}.txt.gz")) for p in ("train", "dev"))
    assert sorted(train + dev) == sorted(documents())
    assert len(dev) > 3
    for part, dupe_factor, num_shards in (("train", 2, 16), ("dev", 1, 1)):
        manifest = json.loads((made.folder / f"{part}-{LENGTH}" / "manifest.json").read_text())
        chosen = {"dupe_factor": dupe_factor, "num_shards": num_shards, "max_predictions": 3}
        assert chosen.items() <= manifest["configuration"].items()


def test_the_vocabulary_is_learned_from_the_documents_to_train_on_alone(tmp_path):
    words = ["".join(letters) for letters in itertools.permutations("abcd")]
    sets = make(tmp_path, [[word, word, word] for word in words], vocabulary_size=500, lengths=[])
    for part, is_known in (("train", True), ("dev", False)):
        for word in {document[0] for document in read_documents(tmp_path / f"{part}.txt.gz")}:
            assert (word in sets.tokenizer.vocabulary) == is_known


def test_the_vocabulary_is_learned_by_the_merges_that_are_chosen(tmp_path):
    learned = {
        merges: make(tmp_path / merges, lengths=[], merges=merges).tokenizer.vocabulary
        for merges in ("likelihood", "frequency")
    }
    assert learned["likelihood"] != learned["frequency"]


def test_what_is_there_is_kept(made):
    def never():
        raise AssertionError("read again")
        yield

    before = {path: path.stat().st_mtime_ns for path in made.folder.rglob("*") if path.is_file()}
    again = make(made.folder, never())
    assert again.tokenizer.vocabulary == made.tokenizer.vocabulary
    only_records = make_sets(None, made.folder, lengths=[LENGTH])
    assert only_records.tokenizer.vocabulary == made.tokenizer.vocabulary
    after = {path: path.stat().st_mtime_ns for path in made.folder.rglob("*") if path.is_file()}
    assert after == before
    with pytest.raises(ValueError, match="dupe_factor.*2,.*3"):
        make(made.folder, dupe_factor=3)
    with pytest.raises(FileNotFoundError, match="train-32:.*such.*records"):
        make_sets(None, made.folder, lengths=[LENGTH, 32])


def test_a_given_vocabulary_is_taken(made, tmp_path):
    given = tmp_path / "given.txt"
    given.write_text("\n".join([*made.tokenizer.vocabulary, "extra"]) + "\n", "utf-8")
    sets = make(tmp_path / "new", vocabulary=given, lengths=[])
    assert sets.tokenizer.vocabulary[-1] == "extra"
    assert (tmp_path / "new/vocab.txt").read_bytes() == given.read_bytes()
    with pytest.raises(ValueError, match=r"vocab.txt: another vocabulary than .*given.txt"):
        make(made.folder, vocabulary=given)
    with pytest.raises(ValueError, match="train-16: made.*vocabulary"):
        make_sets(None, made.folder, lengths=[LENGTH], vocabulary=given)


@pytest.mark.slow
def test_batches_go_on_where_they_are_reported(made):
    def token_ids(skip, count):
        train, _ = made.batches(
            LENGTH, batch_size=4, accumulate=2, steps_per_epoch=3, dynamic_masking=True, seed=3
        )
        assert (len(train), train.num_rows) == (3, 24)
        dataset = train.dataset(skip=skip)
        return [inputs["token_ids"].numpy() for inputs, _, _ in itertools.islice(dataset, count)]

    whole = token_ids(0, 6)
    np.testing.assert_array_equal(token_ids(4, 2), whole[4:])
    assert whole[0].shape == (8, LENGTH)


def test_only_masks_that_are_drawn_can_be_all_alike(made):
    options = {"batch_size": 8, "steps_per_epoch": 3, "always_mask": True}
    train, _ = made.batches(LENGTH, dynamic_masking=True, **options)
    inputs, targets, weights = next(iter(train.dataset()))
    is_chosen = weights["mask_logits"].numpy() > 0
    hidden = np.take_along_axis(
        inputs["token_ids"].numpy(), inputs["mask_positions"].numpy(), axis=1
    )
    assert (hidden[is_chosen] == made.tokenizer.mask_token_id).all()
    assert (targets["mask_logits"].numpy()[is_chosen] != made.tokenizer.mask_token_id).all()
    with pytest.raises(ValueError, match="none are drawn without dynamic_masking"):
        made.batches(LENGTH, **options)


def test_evaluation_has_the_masks_of_the_files(made):
    _, dev = made.batches(LENGTH, batch_size=8, steps_per_epoch=3, dynamic_masking=True)
    num_examples = made.open(LENGTH)[1].num_examples
    assert (len(dev), dev.num_rows) == (-(-num_examples // 8), num_examples)
    dataset = dev.dataset()
    first, again = ([inputs["token_ids"].numpy() for inputs, _, _ in dataset] for _ in range(2))
    assert sum(map(len, first)) == num_examples
    np.testing.assert_array_equal(np.concatenate(first), np.concatenate(again))


def test_counts_are_of_what_is_to_be_predicted(made):
    for part, counts in zip(("train", "dev"), made.token_counts(LENGTH), strict=True):
        manifest = json.loads((made.folder / f"{part}-{LENGTH}" / "manifest.json").read_text())
        assert counts.sum() == manifest["report"]["num_chosen_tokens"]
        assert counts.shape == (made.tokenizer.vocabulary_size,)
        assert counts[:5].sum() == 0  # special tokens
        assert made.tokenizer.vocabulary[counts.argmax()] in ("number", "is", "near")


def test_records_of_another_length_are_refused(made, tmp_path):
    for part in ("train", "dev"):
        shutil.copytree(made.folder / f"{part}-{LENGTH}", tmp_path / f"{part}-8")
    with pytest.raises(ValueError, match="train-8: examples.*16 tokens,.*8: rename"):
        PretrainingSets(tmp_path, made.tokenizer).open(8)


@pytest.mark.slow
def test_public_corpora(data_dir):
    corpora = ("brown", "movie_reviews", "state_union", "wikitext2")
    texts = read_text(data_dir, corpora=corpora)
    separate = [len(read_text(data_dir, corpora=(corpus,))) for corpus in corpora]
    assert len(texts) == sum(separate)
    assert separate[:3] == [500, 2000, 65]
    assert 100 < separate[3] < 200


def test_text_that_is_not_there(tmp_path):
    assert read_text(None) is None
    with pytest.raises(ValueError, match="brown: pass .*folder"):
        read_text(None, corpora=("brown",))
    with pytest.raises(FileNotFoundError, match=r"brown.zip: no such file"):
        read_text(tmp_path, corpora=("brown",))
    with pytest.raises(FileNotFoundError, match=r"wikitext2.valid.txt.gz"):
        read_text(tmp_path, corpora=("wikitext2",))
