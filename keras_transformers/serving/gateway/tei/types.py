"""Defines the requests and answers of Text Embeddings Inference."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from keras_transformers.serving.gateway.apis import Body, ListOf

Texts = str | Annotated[ListOf[str], Field(description="Texts; token ids are not supported.")]
Sequence = Annotated[ListOf[str], Field(min_length=1, max_length=2)]


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


class RerankRequest(Body):
    """A query, and the texts to order by how well they answer it."""

    query: str
    texts: ListOf[str]
    truncate: Truncate = None
    truncation_direction: Direction = "Right"
    raw_scores: RawScores = False
    return_text: bool = False


class Rank(BaseModel):
    """A text's place."""

    index: int
    text: str | None = None
    score: float


class PredictRequest(Body):
    """Texts to classify: a text, a pair [text, text], or a list of [text] and [text, text]."""

    inputs: str | Sequence | ListOf[Sequence]
    truncate: Truncate = None
    truncation_direction: Direction = "Right"
    raw_scores: RawScores = False


class Prediction(BaseModel):
    """The probability of a label."""

    score: float
    label: str


class SimilarityInputs(Body):
    """A text, and the texts to compare with it."""

    source_sentence: str
    sentences: ListOf[str]


class SimilarityParameters(Body):
    """How to read the texts."""

    truncate: Truncate = None
    truncation_direction: Direction = "Right"
    prompt_name: PromptName = None


class SimilarityRequest(Body):
    """Texts to compare."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None


class TokenizeRequest(Body):
    """Texts to split into tokens."""

    inputs: Texts
    add_special_tokens: Annotated[
        bool, Field(description="Also show the tokens that the model reads around any text.")
    ] = True
    prompt_name: Annotated[None, Field(description="Not supported.")] = None


class Token(BaseModel):
    """A token.

    Attributes:
        special: whether the model reads it around any text, even an empty one.
        start: unknown.
        stop: unknown.
    """

    id: int
    text: str
    special: bool
    start: int | None = None
    stop: int | None = None


class Info(BaseModel):
    """A model. What an export does not say is null."""

    model_id: str
    model_sha: None = None
    model_dtype: str = "float32"
    model_type: dict[str, dict[str, dict[str, str] | dict[str, int] | None]]
    max_concurrent_requests: int | None = None
    max_input_length: int | None = None
    max_batch_tokens: int | None = None
    max_batch_requests: int | None = None
    max_client_batch_size: int
    auto_truncate: Literal[True] = True
    tokenization_workers: int | None = None
    version: str
    sha: None = None
    docker_label: None = None
