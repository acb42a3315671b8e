"""Opens and saves folders of static vectors: Model2Vec's, and StaticEmbedding's."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from safetensors.numpy import save_file

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.families import family_named
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.sentence_transformers import (
    MODULES,
    SETTINGS,
    Written,
    module_kinds,
    read_modules,
    read_prompts,
    size_of,
    write_modules,
)
from keras_transformers.convert.formats.tokenizer_files import read_tokenizers
from keras_transformers.convert.formats.tokenizer_json import (
    NAME,
    described_parts,
    tokenizer_json,
)
from keras_transformers.convert.formats.weights import Format, FoundWeights, TrainedModel
from keras_transformers.convert.tensors import NamedTensor, assign
from keras_transformers.families.static.model import static_vectors, table_of
from keras_transformers.files import write_json

if TYPE_CHECKING:
    from keras_transformers.tokenizers import BareTokenizer

__all__: list[str] = []

_MODULE = "sentence_transformers.models.StaticEmbedding"
_KIND = "StaticEmbedding"
_MODEL_TYPE = "model2vec"
_WEIGHTS = "model.safetensors"
_MODEL2VEC, _SENTENCE_TRANSFORMERS = "embeddings", "embedding.weight"  # names of the table
_LENGTH = 512  # Model2Vec's default
_LONGEST = 100_000  # maximum tokens of a text; the others have no limit
_UNKNOWN = "[UNK]"


def open_static(folder: Folder) -> FoundWeights:
    """Opens a folder that Model2Vec saved, or sentence-transformers for a StaticEmbedding.

    Model2Vec's `mapping` of tokens to rows becomes a table with a row for each token. The row of
    the unknown token, which Model2Vec drops from texts, becomes zeros.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged; the table, its weights and its mapping do not belong
            together; or the folder has modules or a tokenizer that are not supported.
    """
    place, normalize = _place(folder)
    is_model2vec = _is_model2vec(folder)
    config = folder.json("config.json") if is_model2vec else {}
    length = _length(folder / "config.json", config) if is_model2vec else None
    settings_file, settings = folder / SETTINGS, folder.json(SETTINGS, missing_ok=True)
    options: dict[str, Any] = {
        "pooling": "mean",
        "normalize": normalize,
        **read_prompts(settings_file, settings, includes=True),
    }
    if settings.get("truncate_dim") is not None:
        options["truncate_dim"] = size_of(settings_file, "truncate_dim", settings)
    shapes = _shapes(place)
    vocabulary_size, width = shapes["token_embedding"]

    def build(*, dropout: float = 0.0, attention_dropout: float = 0.0) -> keras.Model:
        # There is nothing to drop between a table and its mean.
        return static_vectors(
            vocabulary_size=vocabulary_size,
            embedding_dim=width,
            weighted="token_weight" in shapes,
        )

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        ours = [NamedTensor(variable.path, (variable,)) for variable in model.weights]
        unknown = _unknown_id(place) if is_model2vec else None
        return assign(ours, _tensors(place, unknown), ignore=ignore)

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:
        tokenizer = _tokenizer(place, max_tokens=length, drop_unknown=is_model2vec)
        if tokenizer.vocabulary_size > vocabulary_size or (
            is_model2vec and tokenizer.vocabulary_size != vocabulary_size
        ):
            raise ValueError(
                f"{place / NAME} has {tokenizer.vocabulary_size} tokens, but the table in "
                f"{place.arrays.source} has vectors for {vocabulary_size}: copy the tokenizer "
                "that belongs to the table"
            )
        return (tokenizer,)

    return FoundWeights(
        source=folder.path,
        base="embedding",
        trained=("embedding",),
        build=build,
        fill=fill,
        tokenizers=tokenizers,
        has_pooler=False,
        options=options,
        max_sequence_length=_LONGEST if length is None else length,
    )


def save_static(trained: TrainedModel, folder: Path) -> bool:
    """Saves static vectors for model2vec, SentenceTransformer and `keras_transformers.load`.

    If the tokenizer drops unknown tokens, the folder is Model2Vec's, which sentence-transformers
    reads too. It does not drop them, but their vector is zeros in tables that are loaded or
    distilled, so that normalized vectors are the same. Otherwise, it is a StaticEmbedding's.

    Args:
        trained: the encoder, its tokenizer, and the options of `heads.embedder` and the prompts.
        folder: an empty folder.

    Returns:
        Whether the encoder is a table of static vectors; otherwise nothing is written.

    Raises:
        ValueError: neither library has the pooling, a layer after it, or the tokenizer.
    """
    table = table_of(trained.model)
    tokenizer: Any = trained.tokenizers.get("tokenizer")
    if table is None:
        return False
    options = trained.options
    is_model2vec = bool(getattr(tokenizer, "drop_unknown", False))
    _check_saved(trained, table, is_model2vec=is_model2vec)
    name = _MODEL2VEC if is_model2vec else _SENTENCE_TRANSFORMERS
    save_file({name: np.ascontiguousarray(table)}, folder / _WEIGHTS, {"format": "pt"})
    write_json(folder / NAME, _description(tokenizer.tokenizer))
    after = [Written("Normalize", {}, {})] if options["normalize"] else []
    settings: dict[str, Any] = {"similarity_fn_name": "cosine" if after else "dot"}
    if options["truncate_dim"] is not None:
        settings["truncate_dim"] = options["truncate_dim"]
    write_modules(trained, folder, after, settings, first=_MODULE)
    if is_model2vec:
        config = {
            "model_type": _MODEL_TYPE,
            "architectures": ["StaticModel"],
            "hidden_dim": table.shape[1],
            "normalize": options["normalize"],
            "max_length": tokenizer.max_tokens,
            "embedding_dtype": "float32",
        }
        write_json(folder / "config.json", config)
    return True


def bare_tokenizer(
    tokenizer: Any, *, max_tokens: int | None = None, drop_unknown: bool = True
) -> "BareTokenizer":
    """Returns a tokenizer without its special tokens, for static vectors.

    Args:
        tokenizer: an encoder's tokenizer, or a bare one.
        max_tokens: how many tokens of a text are read. The characters that are read are as many
            times the median length of the tokens, as in Model2Vec.
        drop_unknown: whether to drop unknown tokens.

    Example:
        >>> from keras_transformers.tokenizers import WordPieceTokenizer
        >>> names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film", "##s"]
        >>> tokenizer = bare_tokenizer(WordPieceTokenizer(names), max_tokens=512)
        >>> tokenizer.tokenize(["Films ?"]).to_list(), tokenizer.max_characters
        ([[5, 6]], 2560)
    """
    # Imported here because they need TensorFlow, which the weights do not.
    from keras_transformers.tokenizers import (
        BareTokenizer,
        BareWordPieceTokenizer,
        WordPieceTokenizer,
    )

    if isinstance(tokenizer, BareTokenizer):
        tokenizer = tokenizer.tokenizer
    if isinstance(tokenizer, WordPieceTokenizer) and _UNKNOWN in tokenizer.special_names.values():
        parts = tokenizer.parts
        tokens = list(tokenizer.vocabulary)
        tokenizer = BareWordPieceTokenizer(
            tokens[: len(tokens) - (0 if parts is None else len(parts.added))],
            lowercase=tokenizer.lowercase,
            parts=None if parts is None else parts.description,
        )
    characters = None
    if max_tokens is not None:
        characters = max_tokens * _median_length(tokenizer.vocabulary)
    return BareTokenizer(
        tokenizer,
        drop_unknown=drop_unknown,
        max_tokens=max_tokens,
        max_characters=characters,
    )


def _median_length(tokens: Iterable[str]) -> int:
    return max(1, int(np.median([len(token) for token in tokens])))


def _is_model2vec(folder: Folder) -> bool:
    return (folder / "config.json").is_file() and (
        folder.json("config.json").get("model_type") == _MODEL_TYPE
    )


def _place(folder: Folder) -> tuple[Folder, bool]:
    """Returns the folder with the table, and whether vectors are scaled to length 1."""
    if _is_model2vec(folder):
        normalize = folder.json("config.json").get("normalize", False)
        if not isinstance(normalize, bool):
            raise ValueError(
                f"{folder / 'config.json'}: normalize={normalize!r:.100}; expected true or false"
            )
        return folder, normalize
    modules = read_modules(folder)
    kinds = [kind for kind, _ in modules]
    if kinds not in ([_KIND], [_KIND, "Normalize"]):
        raise ValueError(
            f"{folder / MODULES}: modules {', '.join(kinds)}; after a {_KIND}, only Normalize is "
            "supported"
        )
    return modules[0][1], len(modules) > 1


def _length(file: Path, config: Mapping[str, Any]) -> int | None:
    """Returns the maximum tokens of a text in Model2Vec's config.json; None for no limit."""
    length = config.get("max_length", _LENGTH)
    if length is not None and (type(length) is not int or length < 1):
        raise ValueError(f"{file}: max_length={length!r:.100}; expected a number above 0, or null")
    return length


def _name_of_table(arrays: Arrays) -> str:
    names = [name for name in (_MODEL2VEC, _SENTENCE_TRANSFORMERS) if name in arrays]
    if len(names) != 1:
        raise ValueError(
            f"{arrays.source}: {' and '.join(names) or 'no table'}; expected one table, "
            f"{_MODEL2VEC!r} or {_SENTENCE_TRANSFORMERS!r}"
        )
    return names[0]


def _shapes(place: Folder) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the table, with a row for each token, and of the weights, if any."""
    if not (place / _WEIGHTS).is_file() and not place.containers:
        raise FileNotFoundError(f"{place} has no {_WEIGHTS}: copy the whole folder")
    arrays = place.arrays
    shapes, name = dict(arrays.shapes), _name_of_table(arrays)
    others = sorted(shapes.keys() - {name, "weights", "mapping"})
    if others:
        raise ValueError(f"{arrays.source}: {', '.join(others)} are not part of static vectors")
    if len(shapes[name]) != 2 or 0 in shapes[name]:
        raise ValueError(f"{arrays.source}: {name} is {shapes[name]}; expected (tokens, width)")
    (num_tokens,) = shapes.get("mapping", shapes[name][:1]) or (0,)
    for other in ("mapping", "weights"):
        if shapes.get(other, (num_tokens,)) != (num_tokens,) or num_tokens < 1:
            raise ValueError(
                f"{arrays.source}: {other} is {shapes[other]}; expected a number for each of "
                f"{num_tokens} tokens"
            )
    ours: dict[str, tuple[int, ...]] = {"token_embedding": (num_tokens, shapes[name][1])}
    return {**ours, "token_weight": (num_tokens, 1)} if "weights" in shapes else ours


def _unknown_id(place: Folder) -> int | None:
    """Returns the id of the unknown token; None if the tokenizer has none."""
    model = place.json(NAME).get("model")
    model = model if isinstance(model, dict) else {}
    vocabulary = model.get("vocab")
    ids = vocabulary if isinstance(vocabulary, dict) else {}
    unknown = model.get("unk_id", ids.get(str(model.get("unk_token"))))
    return unknown if type(unknown) is int else None


def _tensors(place: Folder, unknown: int | None) -> Arrays:
    """Returns the table, with a row for each token, and the weights, by our names.

    Args:
        place: the folder with the table.
        unknown: the id of a token whose row becomes zeros.
    """
    arrays = place.arrays
    name = _name_of_table(arrays)
    table = arrays[name]
    if table.dtype == np.int8:  # Model2Vec stores no scale
        table = table.astype("float32")
    if "mapping" in arrays:
        mapping = arrays["mapping"]
        if mapping.dtype.kind not in "iu":
            raise ValueError(f"{arrays.source}: mapping is {mapping.dtype}; expected integers")
        wrong = mapping[(mapping < 0) | (mapping >= len(table))]
        if wrong.size:
            raise ValueError(
                f"{arrays.source}: mapping has {wrong[0]}, but {name} has the rows 0 to "
                f"{len(table) - 1}: the file is damaged: download it again"
            )
        table = table[mapping]
    if unknown is not None and 0 <= unknown < len(table):
        table = table.copy()
        table[unknown] = 0
    tensors = {"token_embedding/embeddings": table}
    if "weights" in arrays:
        tensors["token_weight/embeddings"] = arrays["weights"][:, None]
    return Arrays.of(arrays.source, tensors)


def _tokenizer(place: Folder, *, max_tokens: int | None, drop_unknown: bool) -> Any:
    """Makes the tokenizer of a folder with a tokenizer.json."""
    from keras_transformers.tokenizers import BareWordPieceTokenizer, DescribedTokenizer

    file, contents = place / NAME, place.json(NAME)
    model = contents.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if kind == "Unigram":
        (tokenizer,) = read_tokenizers(place, family_named("bert"))
    elif kind == "BPE":
        tokenizer = _made(file, lambda: DescribedTokenizer(contents))
    elif kind == "WordPiece":
        tokens = _tokens(file, contents)
        normalizer = contents.get("normalizer")
        lowercase = bool(normalizer.get("lowercase")) if isinstance(normalizer, dict) else False
        make = BareWordPieceTokenizer
        tokenizer = _made(file, lambda: make(tokens, lowercase=lowercase))
        parts = described_parts(place, {}, tokenizer, lowercase=lowercase, byte_level=False)
        if parts is not None:
            tokenizer = _made(file, lambda: make(tokens, lowercase=lowercase, parts=parts))
    else:
        raise ValueError(f"{file}: model {kind!r:.100}; expected WordPiece, BPE or Unigram")
    return bare_tokenizer(tokenizer, max_tokens=max_tokens, drop_unknown=drop_unknown)


def _made(file: Path, make: Any) -> Any:
    """Makes a tokenizer; any error that a damaged part causes names the file."""
    try:
        return make()
    except Exception as error:
        raise ValueError(f"{file}: {error}") from error


def _tokens(file: Path, contents: Mapping[str, Any]) -> list[str]:
    """Returns the tokens of a WordPiece model, by id."""
    ids = contents["model"].get("vocab")
    if not isinstance(ids, dict) or not all(type(number) is int for number in ids.values()):
        raise ValueError(f"{file}: the model has no vocabulary of tokens and ids")
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError(f"{file}: the ids of its tokens are not 0, 1, 2 and so on")
    return tokens


def _description(tokenizer: Any) -> dict[str, Any]:
    """Returns the tokenizer.json of a tokenizer; ValueError if it has none."""
    if hasattr(tokenizer, "description"):
        described: dict[str, Any] = tokenizer.description
        return described
    if hasattr(tokenizer, "special_names") and hasattr(tokenizer, "parts"):
        is_byte_level = not hasattr(tokenizer, "lowercase")
        if tokenizer.parts is not None or not is_byte_level:
            return {**tokenizer_json(tokenizer), "post_processor": None}
    raise ValueError(
        f"{type(tokenizer).__name__} has no tokenizer.json, which model2vec and "
        "sentence-transformers read: save the pipeline in the format 'keras_transformers'"
    )


def _check_saved(trained: TrainedModel, table: np.ndarray, *, is_model2vec: bool) -> None:
    """Raises ValueError unless both libraries can compute the same vectors."""
    options = trained.options
    tokenizer: Any = trained.tokenizers.get("tokenizer")
    problem = ""
    if tuple(options["pooling"]) != ("mean",) or options["projections"]:
        problem = "they take the mean of the tokens' vectors and add no layers"
    elif not hasattr(tokenizer, "drop_unknown"):
        problem = f"they add no special tokens, as {type(tokenizer).__name__} does"
    elif len(table) != tokenizer.vocabulary_size:
        problem = f"they need {len(table)} tokens, not {tokenizer.vocabulary_size}"
    elif is_model2vec and options["truncate_dim"] is not None:
        problem = "model2vec has no truncate_dim"
    elif tokenizer.max_tokens is not None and (
        not is_model2vec
        or tokenizer.max_characters != tokenizer.max_tokens * _median_length(tokenizer.vocabulary)
    ):
        problem = (
            f"they cut texts elsewhere than max_tokens={tokenizer.max_tokens} and "
            f"max_characters={tokenizer.max_characters}"
        )
    if problem:
        raise ValueError(
            f"model2vec and sentence-transformers compute other static vectors than model "
            f"{trained.model.name!r}: {problem}: save the pipeline in the format "
            "'keras_transformers'"
        )


def _recognises(folder: Folder) -> bool:
    if not folder.path.is_dir():
        return False
    if _KIND in module_kinds(folder):
        return True
    try:
        return _is_model2vec(folder)
    except (OSError, ValueError):
        return False


FORMAT = Format(
    "static vectors: Model2Vec's config.json, or a StaticEmbedding in modules.json",
    _recognises,
    open_static,
    save_static,
)
