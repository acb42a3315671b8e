"""Compiles steps such as lower-casing into a SentencePiece model's own normalization."""

import functools
import json
from collections.abc import Mapping

from keras_transformers.tokenizers.described.charsmap import charsmap_of, charsmap_rules
from keras_transformers.tokenizers.described.unicode_tables import character_table, normalizer_of

__all__: list[str] = []


def folded(charsmap: bytes, *steps: str, replaced: Mapping[str, str] | None = None) -> bytes:
    """Returns a normalization that takes some steps before its own.

    So they run in the graph, and spans are those of the original text.

    Args:
        charsmap: `normalizer_spec.precompiled_charsmap` of a SentencePiece model.
        *steps: types of normalizers of the `tokenizers` library, without options, such as
            "Lowercase".
        replaced: strings that become others before that.
    """
    return _folded(charsmap, steps, tuple((replaced or {}).items()))


@functools.lru_cache(maxsize=8)
def _folded(
    charsmap: bytes, steps: tuple[str, ...], replaced: tuple[tuple[str, str], ...]
) -> bytes:
    normalizers = [{"type": step} for step in steps]
    description = json.dumps({"type": "Sequence", "normalizers": normalizers})
    before = normalizer_of(description)
    rules = charsmap_rules(charsmap) if charsmap else {}
    longest = max(map(len, rules), default=0)

    def after(text: str) -> str:
        """Applies the model's own rules, the longest one at each place."""
        done, at = [], 0
        while at < len(text):
            ends = range(min(at + longest, len(text)), at, -1)
            end = next((end for end in ends if text[at:end] in rules), at + 1)
            done.append(rules.get(text[at:end], text[at:end]))
            at = end
        return "".join(done)

    changed = {
        chr(code): after("".join(map(chr, codes)))
        for code, codes in character_table(description).items()
    }

    def by_character(text: str) -> str:
        return "".join(changed.get(one, rules.get(one, one)) for one in text)

    # Rules for several characters, except those that follow from single characters.
    several = {key: after(before(key)) for key in rules if len(key) > 1}
    several = {key: value for key, value in several.items() if value != by_character(key)}
    single = {key: value for key, value in rules.items() if len(key) == 1}
    return charsmap_of({**single, **changed, **several, **dict(replaced)})
