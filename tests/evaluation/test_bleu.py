"""BLEU of a corpus and by source length, and the benchmark that plots it."""

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_transformers.evaluation.bleu import bleu_by_length, bleu_tokenizer, corpus_bleu
from keras_transformers.runs import ValidationBleu
from keras_transformers.tasks.translation.training import TRAINER

sacrebleu = pytest.importorskip("sacrebleu", reason="needs pip install -e .[evaluation]")

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "attention_by_length.py"
SHORT, LONG = "ein Hund rennt", "ein sehr kleiner Hund rennt über die grüne Wiese"
RIGHT = "a small dog runs over the green meadow"
WRONG = "a small dog runs over a grey street"


def test_bleu_is_sacrebleu_13a():
    hypotheses = ["The dog , it runs on grass.", "A man is riding a Horse", "Two kids play"]
    references = ["The dog runs on the grass.", "A man is riding a horse.", "Two children play."]
    result = corpus_bleu(hypotheses, references)
    expected = sacrebleu.corpus_bleu(hypotheses, [references])
    assert result.score == expected.score > 0
    assert (result.hypothesis_length, result.reference_length) == (17, 18)
    assert result.precisions == tuple(expected.precisions)
    version = sacrebleu.__version__
    assert result.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert result.signature in str(result)
    lowered = corpus_bleu(hypotheses, references, lowercase=True)
    assert lowered.score > result.score
    assert "case:lc" in lowered.signature


def test_bleu_of_empty_hypotheses_is_zero():
    assert corpus_bleu(["", ""], ["a man", "a dog"]).score == 0.0


def test_bleu_refuses_unequal_numbers_and_nothing():
    with pytest.raises(ValueError, match="2 hypotheses for 1 references"):
        corpus_bleu(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="no sentences"):
        corpus_bleu([], [])


def test_without_sacrebleu_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match=r"needs sacrebleu: pip install .*\[evaluation\]"):
        corpus_bleu(["a"], ["a"])


def test_each_class_has_its_own_score():
    sources = [SHORT, LONG, SHORT, "", LONG]
    translations = [RIGHT, WRONG, WRONG, RIGHT, RIGHT]
    found = bleu_by_length(sources, translations, [RIGHT] * 5, limits=(3, 5, 8))
    assert [row["words"] for row in found] == ["1-3", "9+"], "none has 4 to 8 words"
    assert [row["sentences"] for row in found] == [3, 2]
    assert [row["mean_words"] for row in found] == [2.0, 9.0]
    assert found[0]["bleu"] == pytest.approx(corpus_bleu([RIGHT, WRONG, RIGHT], [RIGHT] * 3).score)
    assert found[1]["bleu"] == pytest.approx(corpus_bleu([WRONG, RIGHT], [RIGHT] * 2).score)


def test_a_source_at_a_limit_is_below_it():
    sources = ["w " * length for length in (7, 8, 9, 10, 17)]
    found = bleu_by_length(sources, [RIGHT] * 5, [RIGHT] * 5)
    assert [(row["words"], row["sentences"]) for row in found] == [
        ("1-7", 1),
        ("8-9", 2),
        ("10-11", 1),
        ("17+", 1),
    ]


@pytest.mark.parametrize("limits", [(5, 3), (3, 3), (0, 3)])
def test_limits_must_ascend(limits):
    with pytest.raises(ValueError, match="ascending .*from 1"):
        bleu_by_length([SHORT], [RIGHT], [RIGHT], limits=limits)


def test_unequal_numbers_of_sentences_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        bleu_by_length([SHORT, LONG], [RIGHT], [RIGHT])


def run_folder(folder, scores, sentences=10):
    rows = [
        {"words": words, "mean_words": mean, "sentences": sentences, "bleu": score}
        for (words, mean), score in zip((("1-7", 6.0), ("8+", 11.0)), scores, strict=True)
    ]
    folder.mkdir()
    (folder / "metrics.json").write_text(json.dumps({"test BLEU by source words": rows}))
    return str(folder)


def benchmark(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [str(BENCHMARK), *arguments])
    runpy.run_path(str(BENCHMARK), run_name="__main__")


def test_runs_side_by_side(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[translation]")
    with_it = run_folder(tmp_path / "attention", (35.0, 34.0))
    without = run_folder(tmp_path / "none", (30.25, 20.0))
    picture = tmp_path / "by_length.png"
    benchmark(monkeypatch, with_it, without, "--output", str(picture))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "test BLEU by source words"
    assert printed[2].split() == ["1-7", "10", "35.00", "30.25", "(-4.75)"]
    assert printed[3].split() == ["8+", "10", "34.00", "20.00", "(-14.00)"]
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_runs_that_cannot_be_compared_are_refused(tmp_path, monkeypatch):
    first = run_folder(tmp_path / "first", (35.0, 34.0))
    other = run_folder(tmp_path / "other", (35.0, 34.0), sentences=11)
    with pytest.raises(SystemExit, match="compare runs on one test set"):
        benchmark(monkeypatch, first, other)
    with pytest.raises(SystemExit, match="no such file; .*finished runs"):
        benchmark(monkeypatch, first, str(tmp_path / "nowhere"))
    (tmp_path / "other" / "metrics.json").write_text("{}")
    with pytest.raises(SystemExit, match="no BLEU by source words"):
        benchmark(monkeypatch, first, other)


def test_chinese_is_cut_into_characters_as_sacrebleu_does():
    hypotheses, references = (
        ["一个男人在骑自行车。", "两只狗"],
        ["一个男人骑着自行车。", "两只狗在跑"],
    )
    result = corpus_bleu(hypotheses, references)
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh")
    assert result.score == expected.score
    assert "tok:zh" in result.signature
    assert result.reference_length == 15
    words = corpus_bleu(hypotheses, references, tokenize="13a")  # each sentence is one word
    assert words.score < result.score


@pytest.mark.parametrize(
    ("references", "tokenizer"),
    [
        (["我在北京看 LibreOffice。", "a film"], "zh"),  # all references count together
        (["我", "two dogs run", "a man"], "13a"),
        (["犬がソファで寝ています", "猫"], "char"),
        (["東京都知事選挙の投票率、過去最高"], "char"),  # mostly Chinese characters
        ([*["我在北京看书学习汉语"] * 20, "《ノルウェイの森》"], "zh"),  # a Japanese title
        (["สุนัขวิ่ง"], "char"),
        (["zwei Hunde"], "13a"),
        ([""], "13a"),
    ],
)
def test_the_references_choose_the_tokenizer(references, tokenizer):
    chosen = corpus_bleu(references, references)
    assert chosen == corpus_bleu(references, references, tokenize=tokenizer)
    assert f"tok:{tokenizer}" in chosen.signature


def test_fit_and_evaluate_read_chinese_by_characters():
    translation, reference = "一个男人在骑自行车。", "一个男人骑着自行车。"
    expected = sacrebleu.corpus_bleu([translation] * 2, [[reference] * 2], tokenize="zh")
    translator = SimpleNamespace(translate_all=lambda texts: [translation] * len(texts))
    found = ValidationBleu([("a man rides a bike", reference)] * 2, translator)()
    assert found["bleu"] == pytest.approx(expected.score)
    assert found["bleu"] > 10
    assert TRAINER.baseline(None, [(translation, reference)] * 2) == {
        "bleu_of_copies": pytest.approx(expected.score)
    }


def test_a_language_chooses_the_tokenizer():
    codes = ("zh_CN", "zh-TW", "zho_Hans", "cmn", "ja", "th", "en", "de")
    assert [bleu_tokenizer(code) for code in codes] == [*["zh"] * 4, "char", "char", "13a", "13a"]


def test_lengths_of_texts_without_spaces_are_in_characters():
    sources = ["我爱你", "我有2只小狗", "a man runs"]
    found = bleu_by_length(sources, ["a"] * 3, ["a"] * 3, limits=(3,))
    assert [(each["words"], each["sentences"]) for each in found] == [("1-3", 2), ("4+", 1)]
    assert found[1]["mean_words"] == 6
