import numpy as np
import pytest

from keras_transformers.tokenizers.word_vocabulary import MARKS, UNKNOWN_ID, WordVocabulary


def test_frequent_words_come_first_and_ties_by_letter():
    words, counts = ["b", "rare", "a", "the", "<S>", "c"], np.array([5, 1, 5, 9, 7, 2])
    learned = WordVocabulary.learn(words, counts, vocabulary_size=100)
    assert learned.words == [*MARKS, "the", "a", "b", "c"]
    assert WordVocabulary.learn(words, counts, vocabulary_size=5).words == [*MARKS, "the", "a"]
    assert "rare" in WordVocabulary.learn(words, counts, vocabulary_size=9, min_frequency=1).words


def test_ids_of_words_and_of_what_is_spelled_like_a_mark():
    vocabulary = WordVocabulary([*MARKS, "the", "straße"])
    ids = vocabulary.ids(["straße", "The", "the", "<S>", "</S>", "<UNK>"])
    assert ids.tolist() == [4, UNKNOWN_ID, 3, UNKNOWN_ID, UNKNOWN_ID, UNKNOWN_ID]
    assert ids.dtype == np.int32
    assert vocabulary.ids([]).shape == (0,)
    assert len(vocabulary) == 5


def test_a_file_reads_back_and_is_not_overwritten(tmp_path):
    path = tmp_path / "vocabulary.txt"
    vocabulary = WordVocabulary([*MARKS, "the", "\u2028", "日本"])
    vocabulary.write(path)
    assert path.read_bytes() == "<S>\n</S>\n<UNK>\nthe\n\u2028\n日本\n".encode()
    assert WordVocabulary.read(path).words == vocabulary.words
    with pytest.raises(FileExistsError, match=r"vocabulary.txt exists"):
        vocabulary.write(path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["the"], r"v.txt: .*\['the'\].*<S>, </S>, <UNK>"),
        ([*MARKS, "a", "b", "a"], "v.txt:6: 'a' repeats line 4"),
        ([*MARKS, "a", "", "b"], "v.txt:5: '' is empty"),
        ([*MARKS, "</S>"], "v.txt:4: '</S>' repeats line 2"),
    ],
)
def test_what_is_no_vocabulary_is_refused(lines, message, tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    with pytest.raises(ValueError, match=message):
        WordVocabulary.read(path)


def test_what_cannot_be_learned_is_refused():
    with pytest.raises(ValueError, match="vocabulary_size=3: <S>, </S>, <UNK> take 3 already"):
        WordVocabulary.learn(["a"], [5], vocabulary_size=3)
    with pytest.raises(ValueError, match="1 words.*2 times"):
        WordVocabulary.learn(["a"], [1], vocabulary_size=9)
