"""Defines the requests and answers of Jina's and Cohere's reranking."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from keras_transformers.serving.gateway.apis import Body, ListOf


def _none(value: Any) -> None:
    if value is not None:
        raise ValueError("not supported: exports cut documents at the model's length; leave it out")


def _text_only(value: list[str] | None) -> list[str] | None:
    if value not in (None, ["text"]):
        raise ValueError(f"{value} is not supported: documents are ranked by 'text' alone")
    return value


Unsupported = Annotated[int | None, AfterValidator(_none), Field(description="Not supported.")]


class Document(Body):
    """A document; other fields than its text are returned as they are."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    text: str = Field(description="What is ranked.")


class Request(Body):
    """A query, and the documents to order by how well they answer it."""

    model: Annotated[
        str | None, Field(description="The name of a model; the only reranker by default.")
    ] = None
    query: str = Field(description="What the documents may answer.")
    documents: ListOf[str | Document] = Field(
        description="Texts, or objects with one, up to --max-rows, none of them empty."
    )
    top_n: Annotated[int | None, Field(ge=1, description="Return only the best.")] = None
    max_tokens_per_doc: Unsupported = None

    @property
    def texts(self) -> list[str]:
        """The text of each document."""
        return [
            document if isinstance(document, str) else document.text for document in self.documents
        ]


class RequestV1(Request):
    """A request of Jina's or Cohere's first version."""

    return_documents: Annotated[
        bool, Field(description="Jina's default is true, Cohere's false; here true.")
    ] = True
    rank_fields: Annotated[
        ListOf[str] | None,
        AfterValidator(_text_only),
        Field(description='["text"]: documents are ranked by it alone.'),
    ] = None
    max_chunks_per_doc: Unsupported = None
    truncation: Annotated[
        Literal[True] | None, Field(description="Exports cut documents that are too long.")
    ] = None


class RequestV2(Request):
    """A request of Cohere's second version."""

    return_documents: Annotated[
        bool, Field(description="Whether the answer has the documents.")
    ] = False
    priority: Annotated[int, Field(ge=0, le=0, description="Not supported.")] = 0


class Result(BaseModel):
    """A document's place."""

    index: int = Field(description="Its place in the request.")
    relevance_score: float = Field(description="How well it answers; the best comes first.")
    document: dict[str, Any] | None = Field(
        default=None, description="The document itself, with return_documents."
    )


class Usage(BaseModel):
    """Tokens that the model read: each document's with the query's."""

    total_tokens: int = Field(description="All tokens.")
    prompt_tokens: int = Field(description="The same.")


class Answer(BaseModel):
    """Documents in order, the best first."""

    id: str = Field(description="A new one for each answer.")
    object: Literal["list"] = Field(default="list", description="The type.")
    model: str = Field(description="The name of the model that has answered.")
    results: list[Result] = Field(description="The documents, the best first.")
    usage: Usage | None = Field(
        default=None, description="Left out for exports made by version 1.0."
    )
    meta: dict[str, Any] = Field(description="Cohere's: the API's version, and one search billed.")
