"""Defines the routes of Text Embeddings Inference, each with and without /models/NAME."""

from collections.abc import Callable, Coroutine
from importlib import metadata
from typing import Annotated, Any

from fastapi import Depends, Request

from keras_transformers.serving.gateway import texts
from keras_transformers.serving.gateway.apis import Asked, described_errors, router
from keras_transformers.serving.gateway.backend import Model, Models
from keras_transformers.serving.gateway.refusals import refusal
from keras_transformers.serving.gateway.tei.classes import classified, label_scores
from keras_transformers.serving.gateway.tei.errors import TeiError, error_shape, status
from keras_transformers.serving.gateway.tei.types import (
    EmbedRequest,
    Info,
    Prediction,
    PredictRequest,
    Rank,
    RerankRequest,
    SimilarityRequest,
    SparseEmbedRequest,
    Token,
    TokenizeRequest,
    Weight,
)
from keras_transformers.serving.protocol.errors import Code
from keras_transformers.serving.protocol.floats import shorten_floats, shortest
from keras_transformers.serving.protocol.signatures import DEFAULT_SIGNATURE
from keras_transformers.tasks.answers import TOKENIZE_SIGNATURE

__all__: list[str] = []

# The tasks that embed -> how the model pools its tokens' vectors, which only some exports say.
_POOLING = {"embedding": None, "sparse_embedding": "splade"}
_REMEDY = "put its name into the path, /models/NAME/..."
routes = router(
    error_shape,
    status=status,
    tags=["Text Embeddings Inference"],
    responses=described_errors(TeiError),
)
_Route = Callable[..., Any]


def _model(
    purpose: str, fits: Callable[[Model], bool]
) -> Callable[[Request], Coroutine[Any, Any, Model]]:
    """Returns a function that finds the model in a request's path, or else the only one.

    Args:
        purpose: what the route is for, such as "embedding".
        fits: whether a model can answer.
    """

    async def find(request: Request) -> Model:
        models: Models = request.app.state.models
        name = request.path_params.get("name")
        if name is None:
            return await models.only(purpose, fits, _REMEDY)
        model = await models.find(name)
        if not fits(model):
            raise refusal(
                f"model {name!r} is for {model.task or 'an unknown task'}, not for {purpose}",
                field="model",
                code=Code.FAILED_PRECONDITION,
                status=424,
            )
        return model

    return find


def _tokenizes_texts(model: Model) -> bool:
    inputs = (
        model.signatures[TOKENIZE_SIGNATURE].inputs
        if TOKENIZE_SIGNATURE in model.signatures
        else {}
    )
    return [spec.shape for spec in inputs.values()] == [(None,)]


def _is_for(task: str) -> Callable[[Request], Coroutine[Any, Any, Model]]:
    return _model(task, lambda model: model.task == task)


_Embedder = Annotated[Model, Depends(_is_for("embedding"))]
_SparseEmbedder = Annotated[Model, Depends(_is_for("sparse_embedding"))]
_Reranker = Annotated[Model, Depends(_model("reranking", texts.ranks))]
_Classifier = Annotated[Model, Depends(_model("classification", classified))]
_Tokenizer = Annotated[Model, Depends(_model("tokenizing single texts", _tokenizes_texts))]
_Described = Annotated[
    Model,
    Depends(_model("texts", lambda x: x.task in _POOLING or texts.ranks(x) or classified(x))),
]


def _post(path: str, **options: Any) -> Callable[[_Route], _Route]:
    return _both(routes.post, path, **options)


def _both(add: Callable[..., Any], path: str, **options: Any) -> Callable[[_Route], _Route]:
    """Adds a route twice: for the only model, and for the one in the path."""

    def register(route: _Route) -> _Route:
        add(path, **options)(route)
        add(f"/models/{{name}}{path}", **options)(route)
        return route

    return register


@_post("/embed")
async def embed(body: EmbedRequest, model: _Embedder) -> list[list[float]]:
    """Returns the vectors of texts."""
    inputs = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    texts.check_count(model, inputs, "inputs")
    texts.check_dimensions(model, body.dimensions)
    vectors = await texts.embeddings(model, inputs, _prompt(model, body.prompt_name, ""))
    vectors = vectors[:, : body.dimensions]
    return shortest(texts.unit_vectors(vectors) if body.normalize else vectors).tolist()


@_post("/embed_sparse")
async def embed_sparse(body: SparseEmbedRequest, model: _SparseEmbedder) -> list[list[Weight]]:
    """Returns the weights above 0 of texts, the highest first."""
    inputs = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    texts.check_count(model, inputs, "inputs")
    signature_name = _prompt(model, body.prompt_name, "")
    (name,) = model.signatures[signature_name].inputs
    rows = await model.rows(signature_name, {name: texts.column(inputs)})
    return [
        [
            Weight(index=index, value=value)
            for index, value in zip(row["indices"], shorten_floats(row["weights"]), strict=True)
        ]
        for row in rows
    ]


@_post("/similarity")
async def similarity(body: SimilarityRequest, model: _Embedder) -> list[float]:
    """Returns the cosine similarity of each text to the source."""
    sentences = body.inputs.sentences
    texts.check_count(model, sentences, "inputs.sentences")
    prompt_name = body.parameters.prompt_name if body.parameters else None
    signature_name = _prompt(model, prompt_name, "parameters.")
    vectors = await texts.embeddings(
        model, [body.inputs.source_sentence, *sentences], signature_name
    )
    unit = texts.unit_vectors(vectors)
    return shortest(unit[1:] @ unit[0]).tolist()


@_post("/rerank", response_model_exclude_none=True)
async def rerank(body: RerankRequest, model: _Reranker) -> list[Rank]:
    """Orders texts by how well they answer a query."""
    return [
        Rank(index=index, text=body.texts[index] if body.return_text else None, score=score)
        for index, score in await texts.ranking(model, body.query, body.texts, "texts")
    ]


@_post("/predict")
async def predict(
    body: PredictRequest, model: _Classifier
) -> list[Prediction] | list[list[Prediction]]:
    """Returns the probability of each label, the likeliest first."""
    inputs = body.inputs
    if isinstance(inputs, str):
        return (await _predictions(model, [[inputs]]))[0]
    batch = [row for row in inputs if not isinstance(row, str)]
    if len(batch) == len(inputs):
        return await _predictions(model, batch)
    return (await _predictions(model, [[row for row in inputs if isinstance(row, str)]]))[0]


async def _predictions(model: Model, rows: list[list[str]]) -> list[list[Prediction]]:
    texts.check_count(model, rows, "inputs")
    return [
        [
            Prediction(score=score, label=label)
            for label, score in sorted(row, key=lambda pair: -pair[1])
        ]
        for row in await label_scores(model, rows, "inputs")
    ]


@_post("/tokenize")
async def tokenize(body: TokenizeRequest, model: _Tokenizer) -> list[list[Token]]:
    """Returns the tokens that the model reads."""
    inputs = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    texts.check_count(model, inputs, "inputs")
    (name,) = model.signatures[TOKENIZE_SIGNATURE].inputs
    rows = await model.rows(TOKENIZE_SIGNATURE, {name: texts.column([*inputs, ""])})
    *answers, around = [
        list(zip(row["token_ids"], row["tokens"], strict=True))[: row["num_tokens"]] for row in rows
    ]
    return [
        [
            Token(id=token[0], text=token[1], special=token in around)
            for token in tokens
            if body.add_special_tokens or token not in around
        ]
        for tokens in answers
    ]


@routes.get("/health")
async def health(models: Asked) -> None:
    """Says whether all models answer; 503 if not."""
    if not await models.are_ready():
        raise refusal("a model has no version that answers", code=Code.UNAVAILABLE)


@_both(routes.get, "/info")
async def info(model: _Described) -> Info:
    """Describes the model."""
    labels = ["LABEL_0"]  # of a reranker, as in its config.json
    if classified(model):
        (row,) = await label_scores(
            model, [[""] * len(model.signatures[DEFAULT_SIGNATURE].inputs)], "inputs"
        )
        labels = [label for label, _ in row]
    names = {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    described: dict[str, Any] = names
    kind = "reranker" if texts.ranks(model) else "classifier"
    if model.task in _POOLING:
        kind, described = "embedding", {"pooling": _POOLING[model.task]}
    return Info(
        model_id=model.name,
        model_type={kind: described},
        max_client_batch_size=model.max_rows,
        version=metadata.version("keras-transformers"),
    )


def _prompt(model: Model, name: str | None, place: str) -> str:
    """Returns the signature of a prompt of an embedder."""
    if name is None:
        return DEFAULT_SIGNATURE
    outputs = model.signatures[DEFAULT_SIGNATURE].outputs
    inputs = model.signatures[DEFAULT_SIGNATURE].inputs
    prompts = [
        other
        for other, signature in sorted(model.signatures.items())
        if other != DEFAULT_SIGNATURE
        and signature.inputs == inputs
        and signature.outputs == outputs
    ]
    if name not in prompts:
        raise refusal(
            f"{place}prompt_name is {name[:100]!r}; model {model.name!r} has the prompts: "
            f"{', '.join(prompts) or 'none'}",
            field=f"{place}prompt_name",
        )
    return name
