"""Defines the routes of Jina's and Cohere's reranking."""

import uuid

from pydantic import BaseModel, Field

from keras_transformers.serving.gateway import texts
from keras_transformers.serving.gateway.apis import Asked, described_errors, router
from keras_transformers.serving.gateway.backend import Model, Models
from keras_transformers.serving.gateway.refusals import RefusalError, refusal
from keras_transformers.serving.gateway.rerank.types import (
    Answer,
    Request,
    RequestV1,
    RequestV2,
    Result,
    Usage,
)
from keras_transformers.tasks.answers import TOKENIZE_SIGNATURE

__all__: list[str] = []

_TASK = "reranking"


class RerankError(BaseModel):
    """The answer to a request that is refused or fails."""

    message: str = Field(description="What is wrong, with the value and the remedy.")
    detail: str = Field(description="The same, where Jina's clients look for it.")


def error_shape(error: RefusalError) -> dict[str, str]:
    """Returns Cohere's {message} and Jina's {detail} in one."""
    return {"message": error.message, "detail": error.message}


routes = router(error_shape, tags=["Jina and Cohere"], responses=described_errors(RerankError))


@routes.post("/v1/rerank", response_model_exclude_none=True)
async def rerank_v1(body: RequestV1, models: Asked) -> Answer:
    """Orders documents by how well they answer a query, for Jina's and Cohere's clients."""
    return await _answer(body, models, "1", return_documents=body.return_documents)


@routes.post("/v2/rerank", response_model_exclude_none=True)
async def rerank_v2(body: RequestV2, models: Asked) -> Answer:
    """Orders documents by how well they answer a query, for Cohere's clients."""
    return await _answer(body, models, "2", return_documents=body.return_documents)


async def _answer(body: Request, models: Models, version: str, *, return_documents: bool) -> Answer:
    model = await _model(body.model, models)
    ranking = await texts.ranking(model, body.query, body.texts, "documents")
    results = [
        Result(
            index=index,
            relevance_score=score,
            document=_document(body, index) if return_documents else None,
        )
        for index, score in ranking[: body.top_n]
    ]
    meta = {"api_version": {"version": version}, "billed_units": {"search_units": 1}}
    return Answer(
        id=str(uuid.uuid4()),
        model=model.name,
        results=results,
        usage=await _usage(model, body),
        meta=meta,
    )


async def _model(name: str | None, models: Models) -> Model:
    if name is None:
        return await models.only(_TASK, texts.ranks, "send its name in 'model'")
    model = await models.find(name)
    if not texts.ranks(model):
        raise refusal(
            f"model {name!r} is for {model.task or 'an unknown task'}, not for {_TASK}",
            field="model",
        )
    return model


async def _usage(model: Model, body: Request) -> Usage | None:
    """Returns the tokens that the model reads; None if its export cannot tell."""
    if TOKENIZE_SIGNATURE not in model.signatures:
        return None
    inputs = {"text": texts.column([body.query]), "documents": texts.column(body.texts)[None]}
    count = int((await model.predict(TOKENIZE_SIGNATURE, inputs))["num_tokens"].sum())
    return Usage(total_tokens=count, prompt_tokens=count)


def _document(body: Request, index: int) -> dict[str, object]:
    document = body.documents[index]
    return {"text": document} if isinstance(document, str) else document.model_dump()
