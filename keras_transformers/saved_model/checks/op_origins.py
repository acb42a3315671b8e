"""Lists the first release with each op of tensorflow-text, from release notes and issues.

TF Serving links its own, older tensorflow-text: a server may lack an op that the SavedModel and
today's tensorflow-text have. None means unknown.
"""

from dataclasses import dataclass

_TEXT = "https://github.com/tensorflow/text/releases/tag"
_SERVING = "https://github.com/tensorflow/serving"
_NOTES_2_4 = "https://newreleases.io/project/github/tensorflow/serving/release/2.4.0-rc4"

# TF Serving -> the tensorflow-text that it embeds, and the source. It stayed the same from 2.12 to
# at least 2.18; the source code of a later release, from 2026, has 2.20.0.
EMBEDDED: dict[str, tuple[str, str]] = {
    "2.4": ("2.3.0", _NOTES_2_4),
    "2.12": ("2.12", f"{_SERVING}/pull/2119"),
    "2.18": ("2.12.1", f"{_SERVING}/pull/4057"),
}


@dataclass(frozen=True)
class Origin:
    """When an op first appeared.

    Attributes:
        text: the oldest tensorflow-text known to have it; None if unknown.
        serving: the oldest TF Serving known to have it, from its release notes or the
            tensorflow-text that it embeds; None if unknown.
        sources: URLs.
    """

    text: str | None = None
    serving: str | None = None
    sources: tuple[str, ...] = ()


_SENTENCEPIECE = Origin("2.0.0", "2.4", (f"{_TEXT}/v2.0.0-rc0", _NOTES_2_4))
_DETOKENIZE = Origin(
    "2.0.0", "2.4", ("https://github.com/tensorflow/text/issues/76", _NOTES_2_4)
)  # "we recently added Sentencepiece [...] and includes a detokenize method", 2019-10-19
# 2.11.0 lacks it; the nightly image of December 2022 has it.
_FAST_BERT = Origin("2.9.0", "2.12", (f"{_TEXT}/v2.9.0", f"{_SERVING}/issues/2064"))
# The notes of 2.8.1 mention it as an existing op; TF Serving has it from 2.12 at the latest.
_FAST_WORDPIECE = Origin("2.8.1", "2.12", (f"{_TEXT}/v2.8.1", f"{_SERVING}/pull/2119"))
# Not in 2.12.1, which TF Serving embeds up to 2.18 at least.
_TRIM = Origin("2.13.0", None, (f"{_TEXT}/v2.13.0-rc0", f"{_SERVING}/pull/4057"))
_IN_2_12 = Origin("2.12.0", None, (f"{_TEXT}/v2.12.0",))
_OLD_TOKENIZER = Origin("2.0.0", "2.4", (f"{_TEXT}/v2.0.0-rc0", _NOTES_2_4))

# All ops of tensorflow-text 2.21.1, read from its libraries.
TEXT_OPS: dict[str, Origin] = {
    "CaseFoldUTF8": _OLD_TOKENIZER,
    "ConstrainedSequence": Origin(),
    "FastBertNormalize": _FAST_BERT,
    "FastWordpieceTokenizeWithOffsets": _FAST_WORDPIECE,
    "FindSourceOffsets": Origin(),
    "MaxSpanningTree": Origin(),
    "NormalizeUTF8": _OLD_TOKENIZER,
    "NormalizeUTF8WithOffsetsMap": Origin(),
    "PhraseTokenize": _IN_2_12,
    "RegexSplitWithOffsets": _OLD_TOKENIZER,
    "SentenceFragments": Origin(),
    "SentenceFragmentsV2": Origin(),
    "SentencepieceDetokenizeOp": _DETOKENIZE,
    "SentencepieceIdToStringOp": Origin(),
    "SentencepieceOp": _SENTENCEPIECE,
    "SentencepieceStringToIdOp": Origin(),
    "SentencepieceTokenizeOp": _SENTENCEPIECE,
    "SentencepieceTokenizeWithOffsetsOp": Origin(),
    "SentencepieceVocabSizeOp": Origin(),
    "SplitMergeTokenizeWithOffsets": Origin(),
    "TFText>BoiseTagsToOffsets": _IN_2_12,
    "TFText>ByteSplitByOffsets": _IN_2_12,
    "TFText>ByteSplitWithOffsets": Origin(),
    "TFText>FastSentencepieceDetokenize": Origin(),
    "TFText>FastSentencepieceTokenize": Origin(),
    "TFText>FastWordpieceDetokenize": Origin(),
    "TFText>NgramsStringJoin": Origin("2.9.0", None, (f"{_TEXT}/v2.9.0",)),
    "TFText>OffsetsToBoiseTags": Origin(),
    "TFText>PhraseDetokenize": _IN_2_12,
    "TFText>RoundRobinGenerateMasks": _TRIM,
    "TFText>RoundRobinTrim": _TRIM,
    "TFText>Utf8Binarize": Origin("2.13.0", None, (f"{_TEXT}/v2.13.0-rc0",)),
    "TFText>WhitespaceTokenizeWithOffsetsV2": Origin("2.7.0", None, (f"{_TEXT}/v2.7.0-rc0",)),
    "TokenizerFromLogits": Origin(),
    "UnicodeScriptTokenizeWithOffsets": Origin(),
    "WhitespaceTokenizeWithOffsets": Origin(),
    "WordpieceTokenizeWithOffsets": _OLD_TOKENIZER,
}

# Every TensorFlow has these ops, but they call the Python process that made the graph.
PYTHON_OPS = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
