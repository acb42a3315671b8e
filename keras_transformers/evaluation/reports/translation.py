"""Reports on translations: BLEU, chrF and TER, and by length; with sacrebleu."""

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from keras_transformers.dependencies.extras import optional
from keras_transformers.evaluation.bleu import BleuTokenizer, bleu_by_length, corpus_bleu
from keras_transformers.evaluation.reports.report import Report, ReportTable, counted, on_one_line

__all__ = ["translation_report"]

# The figures -> whether higher is better.
TRANSLATION_FIGURES = MappingProxyType({"bleu": True, "chrf": True, "ter": False})
_NUM_MISTAKES = 10


def translation_report(
    translations: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    *,
    tokenize: BleuTokenizer = "13a",
    title: str = "translation",
) -> Report:
    """Reports on translations; the figures are sacrebleu's.

    Args:
        translations: a translation per source.
        references: a reference per source.
        sources: the sources.
        tokenize: see `evaluation.corpus_bleu`.
        title: the task.

    Returns:
        The figures bleu, chrf and ter (Popović 2015; Snover et al. 2006), 0 to 100, and
        length_ratio, that of the translations' and references' tokens; the tables lengths and
        mistakes, the sentences of the lowest chrF.

    Raises:
        ModuleNotFoundError: sacrebleu is not installed.
        ValueError: see `evaluation.corpus_bleu`.

    Example:
        >>> report = translation_report(["a dog runs on"], ["a dog runs on"], ["ein Hund läuft"])
        >>> round(report.figures["bleu"], 4), report.figures["ter"]
        (100.0, 0.0)
    """
    metrics = optional("sacrebleu.metrics", extra="evaluation")
    bleu = corpus_bleu(translations, references, tokenize=tokenize)
    chrf = metrics.CHRF()
    hypotheses, expected = list(translations), [list(references)]
    ratio = bleu.hypothesis_length / max(bleu.reference_length, 1)
    figures = {
        "bleu": bleu.score,
        "chrf": chrf.corpus_score(hypotheses, expected).score,
        "ter": metrics.TER().corpus_score(hypotheses, expected).score,
        "length_ratio": ratio,
    }
    of_sentence = np.array(
        [
            chrf.sentence_score(translation, [reference]).score
            for translation, reference in zip(translations, references, strict=True)
        ]
    )
    worst = np.argsort(of_sentence, kind="stable")[:_NUM_MISTAKES].tolist()
    lengths = bleu_by_length(sources, translations, references, tokenize=tokenize)
    copies = sum(a == b for a, b in zip(translations, sources, strict=True))
    empty = sum(not translation.strip() for translation in translations)
    findings = [str(bleu), f"Translations are {ratio:.2f} times as long as the references."]
    findings += [f"{copies} of {len(sources)} are copies of their source."] * bool(copies)
    findings += [f"{empty} of {len(sources)} are empty."] * bool(empty)
    return Report(
        title=f"{title}: {counted(len(sources), 'pair')}",
        findings=findings,
        figures=figures,
        tables={
            "lengths": ReportTable(
                "By words of the source",
                ("words", "sentences", "bleu"),
                [(group["words"], group["sentences"], group["bleu"]) for group in lengths],
            ),
            "mistakes": ReportTable(
                "Lowest chrF",
                ("row", "chrf", "source", "reference", "translation"),
                [
                    (
                        i,
                        float(of_sentence[i]),
                        *map(on_one_line, (sources[i], references[i], translations[i])),
                    )
                    for i in worst
                ],
            ),
        },
    )
