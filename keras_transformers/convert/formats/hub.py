"""Fetches folders of weights from the Hugging Face Hub, at one commit, and checks them."""

import functools
import hashlib
import logging
import re
from pathlib import Path

from keras_transformers.dependencies.extras import optional

__all__ = ["fetch"]

_logger = logging.getLogger(__name__)

PREFIX = "hf://"
_ADDRESS = re.compile(r"hf://(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# The files that the readers need: code is not fetched.
_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.spm"]
# Weights to fetch: the first of these that exist.
_OTHER_WEIGHTS = (["pytorch_model*.bin", "*/pytorch_model*.bin"], ["tf_model*.h5"])
_OTHER_FORMATS = ["onnx/*", "openvino/*", "coreml/*", "flax/*"]


def fetch(address: str) -> Path:
    """Fetches a model from the Hugging Face Hub into its cache, unless it is already there.

    It fetches only safetensors, JSON, vocabularies and SentencePiece models; `pytorch_model.bin` if
    there is no safetensors file, and `tf_model.h5` if there is neither. The files are verified
    against the Hub's checksums. Needs the extra `hub`.

    Args:
        address: "hf://organization/name@revision". If the revision is a commit, the files never
            change; a branch, a tag or nothing (the main branch) is resolved to its commit, which a
            warning names. Once fetched, a model needs no network.

    Returns:
        The folder.

    Raises:
        MissingExtraError: huggingface_hub is not installed.
        FileNotFoundError: the Hub has no such model, or cannot be reached.
        ValueError: the address is malformed, or a fetched file is damaged.
    """
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise ValueError(f"{address!r}: expected hf://organization/name or ...@revision")
    download = functools.partial(
        optional("huggingface_hub", extra="hub").snapshot_download,
        parts["name"],
        ignore_patterns=_OTHER_FORMATS,
    )
    try:
        folder = Path(download(revision=parts["revision"], allow_patterns=_FILES))
        present = ["*.safetensors"]
        for patterns in _OTHER_WEIGHTS:
            if not any(True for pattern in present for _ in folder.rglob(pattern)):
                download(revision=folder.name, allow_patterns=patterns)  # the same commit
            present += patterns
    except Exception as error:  # the library's own error types differ between its versions
        reason = " ".join(str(error).split())
        raise FileNotFoundError(
            f"{address} is not in the cache and could not be fetched ({reason}): connect to the "
            "network, or fetch it elsewhere and load the folder"
        ) from error
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            _check(file)
    commit = folder.name
    if _COMMIT.fullmatch(commit) and parts["revision"] != commit:
        _logger.warning(
            "%s is at commit %s: use hf://%s@%s to pin these files",
            address,
            commit,
            parts["name"],
            commit,
        )
    return folder


def _check(file: Path) -> None:
    """Raises ValueError unless a cached file has the checksum that it is named after.

    The cache names large files by their SHA-256 and small ones by git's SHA-1.
    """
    blob = file.resolve()
    if re.fullmatch(r"[0-9a-f]{64}", blob.name):
        digest = hashlib.sha256()
    elif re.fullmatch(r"[0-9a-f]{40}", blob.name):
        digest = hashlib.sha1(b"blob %d\0" % blob.stat().st_size, usedforsecurity=False)
    else:  # a cache without links
        return
    with blob.open("rb") as opened:
        while chunk := opened.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != blob.name:
        raise ValueError(f"{file} is damaged: remove {blob} and load the model again")
