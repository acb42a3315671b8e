"""Makes a SentencePiece model from the Unigram vocabulary in a tokenizer.json."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from keras_transformers.convert.family import Family

__all__: list[str] = []

_MASK = "<mask>"  # fairseq's last token
_UNKNOWNS = ("<unk>", "[UNK]")
_SPLITS, _PREFIXES = "WhitespaceSplit", "Metaspace"
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # types of pieces


def sentencepiece_model(file: Path, contents: Mapping[str, Any], family: Family) -> bytes:
    """Returns the SentencePiece model that a family's tokenizer.json was made from.

    Added tokens at the end of the vocabulary, such as extra ids, are left out.

    Args:
        file: the tokenizer.json, for error messages.
        contents: its contents.
        family: says which tokens come first.

    Raises:
        ValueError: it is damaged, or has unexpected special tokens or bytes.
    """
    try:
        model = contents["model"]
        added = {token["content"] for token in contents["added_tokens"]}
        pieces = [(str(piece), float(score)) for piece, score in model["vocab"]]
        unknown, (_, charsmap, _) = model.get("unk_id"), _normalizers(contents)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ValueError(f"{file}: not a Hugging Face Unigram tokenizer ({error})") from error
    if model.get("byte_fallback"):
        raise ValueError(f"{file}: byte_fallback is not supported: add the SentencePiece model")
    first, last = list(family.first_pieces), [_MASK] if family.fairseq_pieces else []
    while pieces and pieces[-1][0] in added - {*first, *last}:
        pieces.pop()
    names = [piece for piece, _ in pieces]
    is_whole = names[: len(first)] == first and names[len(names) - len(last) :] == last
    if not is_whole or len(set(names)) < len(names):
        ends = f" and ends with {_MASK}" if last else ""
        raise ValueError(
            f"{file}: its vocabulary repeats a token, or is not one that starts with "
            f"{', '.join(first)}{ends}: use the tokenizer that belongs to the model"
        )
    name = next(piece for piece in first if piece in _UNKNOWNS)
    if unknown != names.index(name):
        raise ValueError(f"{file}: unk_id={unknown!r}, but {name} has the id {names.index(name)}")
    if family.fairseq_pieces:
        pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *pieces[len(first) : -1]]
    return _model(pieces, charsmap, {"<pad>", "<s>", "</s>", *first}, unknown=name)


def check_pieces(
    file: Path,
    contents: Mapping[str, Any],
    *,
    normalized: bool,
    before: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Raises ValueError if a tokenizer.json does not split texts as SentencePiece does.

    Args:
        file: the tokenizer.json, for error messages.
        contents: its contents.
        normalized: whether it has added tokens that are matched in normalized text.
        before: the normalizers that the tokenizer applies before SentencePiece's own.
    """
    splitter = contents.get("pre_tokenizer") or {}
    steps = splitter.get("pretokenizers", [splitter])
    kinds = [step.get("type") for step in steps]
    if kinds not in ([_SPLITS, _PREFIXES], [_PREFIXES]):
        raise ValueError(
            f"{file}: splits texts by {', '.join(map(str, kinds)) or 'another pre_tokenizer'}; "
            f"only {_SPLITS} and {_PREFIXES} are supported with SentencePiece"
        )
    prefix = steps[-1].get("prepend_scheme")
    prefixes = prefix == "always" or (prefix is None and steps[-1].get("add_prefix_space", True))
    if not prefixes or steps[-1].get("split", True) is not True:
        raise ValueError(
            f"{file}: {_PREFIXES} with prepend_scheme={prefix!r}; only 'always' is supported with "
            "SentencePiece"
        )
    try:
        steps_before, _, others = _normalizers(contents)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{file}: normalizer {contents.get('normalizer')!r:.100} is not supported with "
            f"SentencePiece ({error})"
        ) from error
    if steps_before != list(before):
        what = ", ".join(str(step.get("type")) for step in steps_before) or "nothing"
        wanted = ", ".join(str(step.get("type")) for step in before) or "nothing"
        raise ValueError(
            f"{file}: normalizes by {what} before Precompiled; only {wanted} is supported here"
        )
    kept = [step for step in others if not _only_shortens(step)]
    if kept:
        raise ValueError(
            f"{file}: normalizer {kept[0].get('type')} is not supported here after Precompiled"
        )
    strips = any(
        step.get("type") == "Strip" and step.get("strip_right", True)
        for step in (*steps_before, *others)
    )
    shortens = any(step.get("type") == "Replace" for step in others)
    if kinds == [_PREFIXES] and (normalized or not (strips and shortens)):
        raise ValueError(
            f"{file}: {_PREFIXES} without {_SPLITS} keeps spaces at the ends of texts"
            f"{' and before added tokens with normalized=true' if normalized else ''}, which "
            "SentencePiece does not"
        )


def _normalizers(
    contents: Mapping[str, Any],
) -> tuple[list[Mapping[str, Any]], bytes, list[Mapping[str, Any]]]:
    """Returns the steps before SentencePiece's own normalization, that step, and those after it."""
    normalizer = contents["normalizer"]
    steps = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    kinds = [step["type"] for step in steps]
    if "Precompiled" not in kinds:
        raise ValueError("it has no normalizer Precompiled, SentencePiece's own")
    place = kinds.index("Precompiled")
    charsmap = base64.b64decode(steps[place]["precompiled_charsmap"], validate=True)
    return steps[:place], charsmap, steps[place + 1 :]


def _only_shortens(step: Mapping[str, Any]) -> bool:
    """Returns whether a normalizer treats spaces as SentencePiece does anyway."""
    if step.get("type") == "Strip":
        return True
    runs = step.get("pattern") == {"Regex": " {2,}"}
    return step.get("type") == "Replace" and runs and step.get("content") in ("▁", " ")


def _model(
    pieces: list[tuple[str, float]], charsmap: bytes, controls: set[str], *, unknown: str
) -> bytes:
    names = [name for name, _ in pieces]
    kinds = {**dict.fromkeys(controls, _CONTROL), unknown: _UNKNOWN}
    ids = {"pad_id": "<pad>", "eos_id": "</s>", "unk_id": unknown, "bos_id": "<s>"}
    proto: Any = sentencepiece_model_pb2  # created at run time, without types
    model = proto.ModelProto()
    for name, score in pieces:
        model.pieces.add(piece=name, score=score, type=kinds.get(name, _NORMAL))
    model.trainer_spec.model_type = 1  # unigram
    model.trainer_spec.vocab_size = len(pieces)
    for field, name in ids.items():
        setattr(model.trainer_spec, field, names.index(name) if name in names else -1)
    model.normalizer_spec.precompiled_charsmap = charsmap
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = True
    model.normalizer_spec.escape_whitespaces = True
    contents: bytes = model.SerializeToString()
    return contents
