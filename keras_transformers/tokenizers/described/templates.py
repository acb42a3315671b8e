"""Finds the special tokens that the `tokenizers` library adds around texts, from their JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__: list[str] = []

_NAMES = ("A", "B")  # of the texts


def ids_around(description: Mapping[str, Any] | None, num_texts: int) -> list[list[int]]:
    """Returns the ids before each text and after the last.

    Args:
        description: the `post_processor` of a tokenizer.json.
        num_texts: 1, or 2 for a pair.

    Raises:
        ValueError: it is damaged, or not a template; the message names it.
    """
    around: list[list[int]] = [[] for _ in range(num_texts + 1)]
    for part in _flat(description):
        kind = part.get("type")
        if kind == "ByteLevel":  # changes offsets only
            continue
        if kind != "TemplateProcessing":
            raise ValueError(f"post_processor {kind!r:.100} is not supported here")
        try:
            more = _template(part, num_texts)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"post_processor {kind} is damaged ({error!r:.100})") from error
        outer = len(around) - 1
        around = [more[i] + ids if i < outer else ids + more[i] for i, ids in enumerate(around)]
    return around


def _flat(description: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if description is None:
        return []
    if description.get("type") != "Sequence":
        return [description]
    parts = description.get("processors")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ValueError("post_processor Sequence is damaged: it has no list of processors")
    return [step for part in parts for step in _flat(part)]


def _template(description: Mapping[str, Any], num_texts: int) -> list[list[int]]:
    around: list[list[int]] = [[]]
    for item in description["pair" if num_texts == 2 else "single"]:
        if "SpecialToken" in item:
            ids = description["special_tokens"][item["SpecialToken"]["id"]]["ids"]
            if not all(type(i) is int and i >= 0 for i in ids):
                raise TypeError(ids)
            around[-1] += ids
            continue
        if len(around) > num_texts or item["Sequence"]["id"] != _NAMES[len(around) - 1]:
            raise ValueError(f"post_processor with the text {item!r:.100} is not supported here")
        around.append([])
    if len(around) != num_texts + 1:
        raise ValueError(f"post_processor puts {len(around) - 1} texts in place of {num_texts}")
    return around


def template(start: Sequence[tuple[str, int]], end: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Returns the post-processor that adds special tokens, names and ids, around each text."""

    def text(number: int) -> list[dict[str, Any]]:
        def special(name: str) -> dict[str, Any]:
            return {"SpecialToken": {"id": name, "type_id": number}}

        middle = {"Sequence": {"id": _NAMES[number], "type_id": number}}
        return [*(special(name) for name, _ in start), middle, *(special(name) for name, _ in end)]

    return {
        "type": "TemplateProcessing",
        "single": text(0),
        "pair": [*text(0), *text(1)],
        "special_tokens": {
            name: {"id": name, "ids": [token_id], "tokens": [name]}
            for name, token_id in [*start, *end]
        },
    }
