"""Makes a SentencePiece model of the Unigram vocabulary in a tokenizer.json."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentencepiece import sentencepiece_model_pb2

__all__ = ["sentencepiece_model"]

_SPECIAL = {"pad_id": "<pad>", "eos_id": "</s>", "unk_id": "<unk>"}
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # types of pieces


def sentencepiece_model(file: Path, contents: Mapping[str, Any]) -> bytes:
    """Returns the SentencePiece model of which a tokenizer.json was made, as T5's are.

    Added tokens at the end of the vocabulary, such as T5's extra ids, are left out.

    Args:
        file: the tokenizer.json, for messages.
        contents: what it holds.

    Raises:
        ValueError: it is damaged, or splits or normalizes texts in another way than SentencePiece
            with T5's special tokens.
    """
    try:
        model, normalizer = contents["model"], contents["normalizer"]
        added = {token["content"] for token in contents["added_tokens"]}
        pieces = [(str(piece), float(score)) for piece, score in model["vocab"]]
        kinds = [step["type"] for step in contents["pre_tokenizer"].get("pretokenizers", [])]
        if normalizer["type"] == "Sequence":  # the rest shortens spaces
            normalizer = normalizer["normalizers"][0]
        charsmap = base64.b64decode(normalizer["precompiled_charsmap"], validate=True)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ValueError(f"{file}: not a Unigram tokenizer of Hugging Face's ({error})") from error
    if kinds != ["WhitespaceSplit", "Metaspace"] or model.get("byte_fallback"):
        raise ValueError(
            f"{file}: splits texts by {', '.join(map(str, kinds)) or 'another pre_tokenizer'} or "
            "into bytes; only WhitespaceSplit and Metaspace are supported: add spiece.model"
        )
    while pieces and pieces[-1][0] in added - set(_SPECIAL.values()):
        pieces.pop()
    names = [piece for piece, _ in pieces]
    if not set(_SPECIAL.values()) <= set(names) or len(set(names)) < len(names):
        raise ValueError(
            f"{file}: its vocabulary repeats a token or lacks one of {', '.join(_SPECIAL.values())}"
        )
    proto: Any = sentencepiece_model_pb2  # made at run time, without types
    found = proto.ModelProto()
    for name, score in pieces:
        kind = {"<unk>": _UNKNOWN, "<pad>": _CONTROL, "</s>": _CONTROL}.get(name, _NORMAL)
        found.pieces.add(piece=name, score=score, type=kind)
    found.trainer_spec.model_type = 1  # unigram
    found.trainer_spec.vocab_size = len(pieces)
    found.trainer_spec.bos_id = -1
    for field, name in _SPECIAL.items():
        setattr(found.trainer_spec, field, names.index(name))
    found.normalizer_spec.precompiled_charsmap = charsmap
    found.normalizer_spec.add_dummy_prefix = True
    found.normalizer_spec.remove_extra_whitespaces = True
    found.normalizer_spec.escape_whitespaces = True
    return found.SerializeToString()
