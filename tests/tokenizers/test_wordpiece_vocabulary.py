"""WordPiece vocabularies: files, invalid files, and training."""

import gzip
import itertools
from collections import Counter

import numpy as np
import pytest
from checks import says

from keras_transformers.tokenizers import WordPieceTokenizer, vocabulary
from keras_transformers.tokenizers.likely_merges import LikelyMerges

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = (
    "The good films and the good actors.\nGood acting, filmed by good people!\n\nEin gutes Ende.\n"
)


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# --- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{}\n", "{}", "\ufeff{}\n"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_reading(tmp_path, text, line_end):
    tokens = [*SPECIAL, "a", "\u2028", "\x85", "##b\u3000", " "]
    path = write(tmp_path / "vocab.txt", text.format(line_end.join(tokens)))
    for given in (path, str(path), tokens, tuple(tokens)):
        tokenizer = WordPieceTokenizer(given)
        assert tokenizer.vocabulary == tokens
        assert tokenizer.vocabulary_size == len(tokens)


def test_special_tokens_anywhere():
    tokenizer = WordPieceTokenizer(["a", *SPECIAL[::-1], "b"])
    packed = tokenizer(["b a z", "a"], max_sequence_length=8)
    assert packed["token_ids"].numpy().tolist() == [[3, 6, 0, 4, 2], [3, 0, 2, 5, 5]]
    assert tokenizer.mask_token_id == 1


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"vocab\.txt: no such file"):
        WordPieceTokenizer(tmp_path / "vocab.txt")


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([*SPECIAL, "a", "", "b"], "{}:7: ''"),
        ([*SPECIAL, "a", "b", "a"], r"{}:8: token 'a' repeats {}:6"),
        (["[PAD]", "[UNK]", "[SEP]", "a"], r"{}: \[CLS\], \[MASK\] missing from 4 tokens"),
        ([], r"missing from 0 tokens|is not a token"),
        ([*SPECIAL, "a", "b" * 257], "{}: tensorflow_text cannot use it: .*max supported"),
        (SPECIAL, "{}: .*No valid vocab tokens"),
    ],
)
def test_wrong_vocabularies(tmp_path, tokens, message):
    path = write(tmp_path / "vocab.txt", "".join(f"{token}\n" for token in tokens))
    with pytest.raises(ValueError, match=message.replace("{}", r"\S+vocab\.txt")):
        WordPieceTokenizer(path)
    in_list = message.replace("{}:8", r"vocabulary\[7\]").replace("{}:7", r"vocabulary\[6\]")
    in_list = in_list.replace("{}:6", r"vocabulary\[5\]").replace("{}", "vocabulary")
    with pytest.raises(ValueError, match=in_list):
        WordPieceTokenizer(tokens)


def test_tokens_that_are_no_strings():
    with pytest.raises(ValueError, match=r"vocabulary\[5\]: 7.*token"):
        WordPieceTokenizer([*SPECIAL, 7])


def test_a_file_that_is_not_utf8(tmp_path):
    path = write(tmp_path / "vocab.txt", b"[PAD]\n[UNK]\ncaf\xe9\n")
    with pytest.raises(ValueError, match=r"vocab\.txt:3: not UTF-8"):
        WordPieceTokenizer(path)


# --- training --------------------------------------------------------------------------------


def test_training(tmp_path):
    write(tmp_path / "a.txt", TEXT)
    write(tmp_path / "b.txt.gz", gzip.compress(TEXT.upper().encode()))
    files = [tmp_path / "a.txt", tmp_path / "b.txt.gz"]
    tokenizer = WordPieceTokenizer.train(files, tmp_path / "vocab.txt", vocabulary_size=70)
    assert tokenizer.vocabulary == WordPieceTokenizer(tmp_path / "vocab.txt").vocabulary
    assert tokenizer.vocabulary[:5] == SPECIAL
    assert tokenizer.vocabulary_size == 70
    assert {"good", "the"} < set(tokenizer.vocabulary)
    words = tokenizer.detokenize(tokenizer.tokenize(["GOOD actors, and films!"])).numpy()[0]
    assert words == b"good actors , and films !"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt.gz", "vocab.txt"]


def test_training_keeps_case_and_accents_when_told(tmp_path):
    file = write(tmp_path / "a.txt", "Élan Élan élan\n")
    cased = WordPieceTokenizer.train([file], tmp_path / "cased", lowercase=False)
    assert {"Élan", "##lan"} < set(cased.vocabulary)
    assert not cased.lowercase
    uncased = WordPieceTokenizer.train([file], tmp_path / "uncased")
    assert "elan" in uncased.vocabulary
    assert not set("Éé") & set("".join(uncased.vocabulary))


PAIRS = {"ac": 20, "ad": 20, "ae": 20, "af": 20, "cb": 20, "db": 20, "eb": 20, "fb": 20}


@pytest.mark.parametrize(("merges", "first"), [("likelihood", "xy"), ("frequency", "ac")])
def test_the_first_merge(tmp_path, merges, first):
    """The score of xy is 9 / (9 * 9), that of the more frequent ac only 20 / (90 * 20)."""
    words = PAIRS | {"ab": 10, "xy": 9}
    file = write(tmp_path / "a.txt", "\n".join(f"{word} " * n for word, n in words.items()))
    fixed = [*SPECIAL, *"abcdefxy", *(f"##{letter}" for letter in "bcdefy")]
    tokenizer = WordPieceTokenizer.train(
        [file], tmp_path / "vocab.txt", vocabulary_size=len(fixed) + 1, merges=merges
    )
    assert set(tokenizer.vocabulary) - set(fixed) == {first}


def test_unknown_merges_are_refused_by_naming_the_choices(tmp_path):
    file = write(tmp_path / "a.txt", TEXT)
    with pytest.raises(ValueError, match="merges='pmi'") as error:
        WordPieceTokenizer.train([file], tmp_path / "vocab.txt", merges="pmi")
    assert says(str(error.value), "'likelihood' ... 'frequency'")
    assert not (tmp_path / "vocab.txt").exists()


def merged_one_by_one(words, min_frequency):
    """Counts everything anew before each merge."""
    splits = {word: [word[0], *(f"##{c}" for c in word[1:])] for word in words}
    pieces = {piece for split in splits.values() for piece in split}
    while True:
        counts, pairs = Counter(), Counter()
        for word, times in words.items():
            for piece in splits[word]:
                counts[piece] += times
            for pair in itertools.pairwise(splits[word]):
                pairs[pair] += times
        scores = {
            pair: (-count / (counts[pair[0]] * counts[pair[1]]), -count, pair)
            for pair, count in pairs.items()
            if count >= min_frequency
        }
        if not scores:
            return
        best = min(scores, key=scores.get)
        merged = best[0] + best[1].removeprefix("##")
        for word, split in splits.items():
            joined, rest = [], split
            while rest:
                is_best = tuple(rest[:2]) == best
                joined.append(merged if is_best else rest[0])
                rest = rest[2 if is_best else 1 :]
            splits[word] = joined
        if merged not in pieces:
            pieces.add(merged)
            yield merged


@pytest.mark.parametrize("seed", range(5))
def test_merges_by_likelihood_are_those_of_a_full_count(seed):
    random = np.random.default_rng(seed)
    words = {
        "".join(random.choice(list("aabcd"), random.integers(1, 9))): int(random.integers(1, 30))
        for _ in range(60)
    }
    expected = list(merged_one_by_one(words, 2))
    assert list(LikelyMerges(words, min_frequency=2)) == expected
    assert len(expected) > 50


def test_likely_pieces_are_of_known_words_and_short_enough(tmp_path):
    """Words with rare characters are unknown to the tokenizer, so it learns nothing from them."""
    file = write(tmp_path / "a.txt", f"{'ab ' * 900}{'xa ' * 2}{'ba' * 200} {'ba' * 200}")
    tokenizer = WordPieceTokenizer.train(
        [file], tmp_path / "vocab.txt", merges="likelihood", max_characters=2
    )
    assert set("".join(tokenizer.vocabulary[5:])) == set("ab#")
    assert 100 < max(map(len, tokenizer.vocabulary)) <= 258


def test_a_vocabulary_of_too_little_text_is_smaller_and_its_size_is_logged(tmp_path, caplog):
    file = write(tmp_path / "a.txt", "low low lower")
    for merges in ("likelihood", "frequency"):
        path = tmp_path / merges
        size = WordPieceTokenizer.train([file], path, vocabulary_size=50, merges=merges)
        assert says(caplog.text, f"{path} ... {size.vocabulary_size} tokens ... =50 ... more text")
    caplog.clear()
    WordPieceTokenizer.train([file], tmp_path / "enough", vocabulary_size=size.vocabulary_size)
    assert not caplog.text


@pytest.mark.slow
def test_the_same_text_gives_the_same_vocabulary(data_dir, tmp_path):
    files = [data_dir / "multi30k/val.de.gz", data_dir / "multi30k/val.en.gz"]
    texts = set()
    for run in range(4):
        path = tmp_path / str(run)
        tokenizer = WordPieceTokenizer.train(files, path, vocabulary_size=2000)
        assert tokenizer.vocabulary_size == 2000
        texts.add(path.read_text("utf-8"))
    assert len(texts) == 1
    line = "Zwei junge weiße Männer sind im Freien. A man in a blue shirt."
    assert tokenizer.unknown_token_id not in tokenizer.tokenize([line]).to_list()[0]


def test_rare_characters_get_no_token(tmp_path):
    file = write(tmp_path / "a.txt", "aaaa bbb cc d")
    tokenizer = WordPieceTokenizer.train([file], tmp_path / "vocab.txt", max_characters=2)
    assert set("".join(tokenizer.vocabulary[5:])) == set("ab#")


def test_pieces_too_long_for_the_op_are_left_out(tmp_path):
    file = write(tmp_path / "a.txt", f"{'ab' * 200} {'ab' * 100} ab\n" * 3)
    tokenizer = WordPieceTokenizer.train([file], tmp_path / "vocab.txt")
    longest = max(len(token) for token in tokenizer.vocabulary)
    assert 100 < longest <= 258
    tokens = tokenizer.tokenize(["ab", "ab" * 50, "ab" * 51]).to_list()
    assert tokenizer.unknown_token_id not in tokens[0] + tokens[1]
    assert tokens[2] == [tokenizer.unknown_token_id]


def test_training_never_overwrites(tmp_path):
    file = write(tmp_path / "a.txt", TEXT)
    old = write(tmp_path / "vocab.txt", "precious")
    with pytest.raises(FileExistsError, match=r"vocab\.txt exists"):
        WordPieceTokenizer.train([file], old)
    assert old.read_text("utf-8") == "precious"


def test_training_that_fails_leaves_nothing(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", TEXT)
    write(tmp_path / "empty.txt", " \n\n")
    write(tmp_path / "latin.txt", b"fine\ncaf\xe9\n")
    names = sorted(path.name for path in tmp_path.iterdir())
    wrong = [
        (["a.txt"], 30, ValueError, "vocabulary_size=30 is too small: .* need 4[0-9]$"),
        (["empty.txt"], 100, ValueError, r"empty\.txt: no text to learn a vocabulary from"),
        ([], 100, ValueError, "no files: no text to learn"),
        (["latin.txt"], 100, ValueError, r"latin\.txt:2: not UTF-8"),
        (["b.txt"], 100, FileNotFoundError, r"b\.txt: no such file"),
    ]
    for files, size, error, message in wrong:
        with pytest.raises(error, match=message):
            WordPieceTokenizer.train(
                [tmp_path / name for name in files], tmp_path / "vocab.txt", vocabulary_size=size
            )
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        WordPieceTokenizer.train([tmp_path / "a.txt"], tmp_path / "nowhere/vocab.txt")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        vocabulary.write([*SPECIAL, "a"], tmp_path / "vocab.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == names
