"""Computes the BLEU of a corpus, whole or by sentence length, with sacrebleu.

It needs the extra `evaluation`.
"""

import bisect
import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal

from keras_transformers.dependencies.extras import optional
from keras_transformers.tokenizers import scripts

__all__ = ["BleuResult", "BleuTokenizer", "bleu_by_length", "bleu_tokenizer", "corpus_bleu"]

BleuTokenizer = Literal["13a", "zh", "char", "intl"]

# On Multi30k's German test set of 2016, each of the six classes has 75 to 234 sentences.
_LIMITS = (7, 9, 11, 13, 16)
# ISO 639's codes of Chinese, and of other languages whose words no spaces part.
_CHINESE = frozenset({"zh", "zho", "chi", "cmn", "yue"})
_WITHOUT_SPACES = frozenset({"ja", "jpn", "th", "tha", "lo", "lao", "km", "khm"})


@dataclasses.dataclass(frozen=True)
class BleuResult:
    """Holds a corpus BLEU score and the details needed to compare it with others.

    Attributes:
        score: BLEU, 0 to 100.
        signature: sacrebleu's signature: tokenizer, case, smoothing and version.
        precisions: n-gram precisions for n = 1 to 4, each 0 to 100.
        brevity_penalty: 1 if the hypotheses are at least as long as the references.
        hypothesis_length: length of the hypotheses in the metric's tokens.
        reference_length: length of the references in the metric's tokens.
    """

    score: float
    signature: str
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int

    def __str__(self) -> str:
        precisions = "/".join(f"{precision:.1f}" for precision in self.precisions)
        return (
            f"BLEU {self.score:.2f} {precisions} (BP {self.brevity_penalty:.3f}, "
            f"{self.hypothesis_length} tokens for {self.reference_length}) {self.signature}"
        )


def bleu_tokenizer(language: str) -> BleuTokenizer:
    """Returns the name of sacrebleu's tokenizer for a target language.

    Args:
        language: its code, such as "en" or "zh_CN": "zh" for Chinese, "char" for Japanese, Thai,
            Lao and Khmer, "13a" for the rest.
    """
    code = re.split("[-_]", language.lower())[0]
    return "zh" if code in _CHINESE else "char" if code in _WITHOUT_SPACES else "13a"


def _tokenizer_of(references: Sequence[str]) -> BleuTokenizer:
    if scripts.share(scripts.WITHOUT_SPACES, references) <= 0.5:
        return "13a"
    # Japanese may be mostly Chinese characters, but not without kana.
    return "char" if scripts.share(scripts.NOT_CHINESE, references) > 0.05 else "zh"


def corpus_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: BleuTokenizer | None = None,
) -> BleuResult:
    """Computes the corpus BLEU of detokenized translations, with sacrebleu.

    Args:
        hypotheses: one translation per sentence; may be empty strings.
        references: one reference per sentence.
        lowercase: whether to ignore case.
        tokenize: sacrebleu's name of a tokenizer, such as `bleu_tokenizer` returns. None: "13a"
            unless most words of the references are characters of scripts without spaces; then "zh"
            for Chinese and "char" for the others, such as Japanese.

    Raises:
        ModuleNotFoundError: sacrebleu is not installed.
        ValueError: there are no sentences, or the numbers of hypotheses and references differ.

    Example:
        >>> corpus_bleu(["a dog runs on grass"], ["a dog runs on grass"]).score.__round__(4)
        100.0
    """
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses for {len(references)} references: pass one reference "
            "per hypothesis, in the same order"
        )
    if not hypotheses:
        raise ValueError("BLEU of no sentences is undefined: is the test file empty?")
    metric = optional("sacrebleu.metrics", extra="evaluation").BLEU(
        lowercase=lowercase, tokenize=tokenize or _tokenizer_of(references)
    )
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return BleuResult(
        score=result.score,
        signature=str(metric.get_signature()),
        precisions=tuple(result.precisions),
        brevity_penalty=result.bp,
        hypothesis_length=result.sys_len,
        reference_length=result.ref_len,
    )


def bleu_by_length(
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
    *,
    limits: Sequence[int] = _LIMITS,
    tokenize: BleuTokenizer | None = None,
) -> list[dict[str, Any]]:
    """Computes the corpus BLEU separately for each class of source length.

    Attention helps most in long sentences (Bahdanau et al. 2014, figure 2). Length is the number of
    words between spaces, so that models with different vocabularies can be compared; in scripts
    without spaces, such as Chinese, each character counts as a word.

    Args:
        sources: detokenized sentences.
        translations: one translation per source.
        references: one reference per source.
        limits: ascending maximum word counts of the classes; a last class has no maximum.
        tokenize: see `corpus_bleu`.

    Returns:
        For each class with sentences: "words" ("8-9", "17+"), "mean_words" of its sources,
        "sentences" (their number) and "bleu", 0 to 100 (cased).

    Raises:
        ModuleNotFoundError: sacrebleu is not installed.
        ValueError: the limits do not ascend, or the numbers of sentences differ.
    """
    if list(limits) != sorted(set(limits)) or not all(limit > 0 for limit in limits):
        raise ValueError(f"limits={list(limits)}: must be ascending numbers of words from 1")
    tokenize = tokenize or _tokenizer_of(references)  # of all, not of each class
    lengths = [len(scripts.words_of(source)) for source in sources]
    rows = list(zip(lengths, translations, references, strict=True))
    groups = []
    for index, first in enumerate((1, *(limit + 1 for limit in limits))):
        # A source without words belongs to the first class.
        members = [row for row in rows if bisect.bisect_left(limits, row[0]) == index]
        if not members:
            continue
        counts, hypotheses, expected = zip(*members, strict=True)
        groups.append(
            {
                "words": f"{first}-{limits[index]}" if index < len(limits) else f"{first}+",
                "mean_words": sum(counts) / len(counts),
                "sentences": len(members),
                "bleu": corpus_bleu(hypotheses, expected, tokenize=tokenize).score,
            }
        )
    return groups
