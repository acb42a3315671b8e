"""Defines the requests and answers of Text Embeddings Inference."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from keras_transformers.serving.gateway.apis import Body, ListOf

Texts = Annotated[
    str | ListOf[str],
    Field(description="A text or texts, up to --max-rows; token ids are not supported."),
]
Sequence = Annotated[ListOf[str], Field(min_length=1, max_length=2)]

_UNKNOWN = "Unknown."


def _cuts(value: bool | None) -> bool | None:
    if value is False:
        raise ValueError("false is not supported: exports cut texts that are too long; send true")
    return value


def _right(value: str) -> str:
    if value.lower() != "right":
        raise ValueError(f"{value!r} is not supported: exports cut the end of texts; send 'Right'")
    return value


def _not_raw(value: bool) -> bool:
    if value:
        raise ValueError("true is not supported: an export has one kind of scores; send false")
    return value


Truncate = Annotated[
    bool | None, AfterValidator(_cuts), Field(description="Exports cut texts that are too long.")
]
Direction = Annotated[
    Literal["Right", "right", "Left", "left"],
    AfterValidator(_right),
    Field(description="Exports cut the end of texts that are too long."),
]
RawScores = Annotated[
    bool, AfterValidator(_not_raw), Field(description="Scores are those of the export.")
]
PromptName = Annotated[
    str | None,
    Field(description="One of the prompts of the embedder; its default prompt if it is null."),
]


class EmbedRequest(Body):
    """Texts to embed."""

    inputs: Texts
    normalize: Annotated[
        bool, Field(description="Scale vectors to length 1; the export's own vectors if false.")
    ] = True
    truncate: Truncate = None
    truncation_direction: Direction = "Right"
    prompt_name: PromptName = None
    dimensions: Annotated[
        int | None,
        Field(ge=1, description="Keep only the first of a vector's numbers (Matryoshka)."),
    ] = None


class SparseEmbedRequest(Body):
    """Texts whose sparse embeddings are wanted."""

    inputs: Texts
    truncate: Truncate = None
    truncation_direction: Direction = "Right"
    prompt_name: PromptName = None


class Weight(BaseModel):
    """The weight of a token of the vocabulary."""

    index: int = Field(description="The token's id.")
    value: float = Field(description="Its weight, above 0.")


class RerankRequest(Body):
    """A query, and the texts to order by how well they answer it."""

    query: str = Field(description="What the texts may answer.")
    texts: ListOf[str] = Field(description="Texts, up to --max-rows, none of them empty.")
    truncate: Truncate = None
    truncation_direction: Direction = "Right"
    raw_scores: RawScores = False
    return_text: Annotated[bool, Field(description="Whether the answer has the texts.")] = False


class Rank(BaseModel):
    """A text's place."""

    index: int = Field(description="Its place in the request.")
    text: str | None = Field(default=None, description="The text itself, with return_text.")
    score: float = Field(description="How well it answers; the best comes first.")


class PredictRequest(Body):
    """Texts to classify: a text, a pair [text, text], or a list of [text] and [text, text]."""

    inputs: str | Sequence | ListOf[Sequence] = Field(
        description="A text, a pair, or a list of [text] and [text, text]; up to --max-rows."
    )
    truncate: Truncate = None
    truncation_direction: Direction = "Right"
    raw_scores: RawScores = False


class Prediction(BaseModel):
    """The probability of a label."""

    score: float = Field(description="The probability.")
    label: str = Field(description="The label's name.")


class SimilarityInputs(Body):
    """A text, and the texts to compare with it."""

    source_sentence: str = Field(description="The text.")
    sentences: ListOf[str] = Field(description="Texts to compare with it, up to --max-rows.")


class SimilarityParameters(Body):
    """How to read the texts."""

    truncate: Truncate = None
    truncation_direction: Direction = "Right"
    prompt_name: PromptName = None


class SimilarityRequest(Body):
    """Texts to compare."""

    inputs: SimilarityInputs = Field(description="The texts.")
    parameters: SimilarityParameters | None = Field(default=None, description="How to read them.")


class TokenizeRequest(Body):
    """Texts to split into tokens."""

    inputs: Texts
    add_special_tokens: Annotated[
        bool, Field(description="Also show the tokens that the model reads around any text.")
    ] = True
    prompt_name: Annotated[None, Field(description="Not supported.")] = None


class Token(BaseModel):
    """A token."""

    id: int = Field(description="Its id in the vocabulary.")
    text: str = Field(description="Its text in the vocabulary.")
    special: bool = Field(
        description="Whether the model reads it around any text, even an empty one."
    )
    start: None = Field(
        default=None, description="An export does not say where in the text it starts."
    )
    stop: None = Field(default=None, description="Nor where it ends.")


class Info(BaseModel):
    """A model. What an export does not say is null."""

    model_id: str = Field(description="Its name.")
    model_sha: None = Field(default=None, description=_UNKNOWN)
    model_dtype: str = Field(default="float32", description="The type of the answers' numbers.")
    model_type: dict[str, dict[str, dict[str, str] | dict[str, int] | str | None]] = Field(
        description='"embedding", "reranker" or "classifier", and its labels.'
    )
    max_concurrent_requests: None = Field(default=None, description=_UNKNOWN)
    max_input_length: None = Field(default=None, description=_UNKNOWN)
    max_batch_tokens: None = Field(default=None, description=_UNKNOWN)
    max_batch_requests: None = Field(default=None, description=_UNKNOWN)
    max_client_batch_size: int = Field(description="How many texts a request may have.")
    auto_truncate: Literal[True] = Field(
        default=True, description="Exports cut texts that are too long."
    )
    tokenization_workers: None = Field(default=None, description=_UNKNOWN)
    version: str = Field(description="The version of keras_transformers.")
    sha: None = Field(default=None, description=_UNKNOWN)
    docker_label: None = Field(default=None, description=_UNKNOWN)
