"""Defines what the types of OpenAI's requests and answers share."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.gateway.apis import ListOf

IGNORED = "Ignored."


def _as_texts(value: Json) -> Json:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise PydanticCustomError("texts", "must be a string or a list of strings")
    if any(isinstance(item, int | list) for item in value):
        raise PydanticCustomError(
            "token_ids",
            "token ids are not supported: send texts (langchain-openai does with "
            "check_embedding_ctx_length=False)",
        )
    return value


# A field that takes a text or a list of texts.
Texts = Annotated[
    ListOf[str],
    BeforeValidator(_as_texts, json_schema_input_type=str | list[str]),
]


class Neutral:
    """Marks a field that is not supported, with the values that ask for nothing.

    Clients send these because they are the API's defaults, such as `"frequency_penalty": 0`.

    Args:
        *values: those besides null, as JSON values.
    """

    def __init__(self, *values: Json) -> None:
        self._values = values

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"enum": [None, *self._values], "description": "Not supported."}

    def _check(self, value: Json) -> Json:
        for neutral in (None, *self._values):
            if value == neutral and isinstance(value, bool) == isinstance(neutral, bool):
                return value
        sent = " or ".join(map(json.dumps, self._values))
        remedy = f"leave it out, or send {sent}" if sent else "leave it out"
        raise PydanticCustomError("not_supported", "is not supported: {remedy}", {"remedy": remedy})


class CompletionUsage(BaseModel):
    """How many tokens a request took."""

    prompt_tokens: int = Field(description="Those that the model read, special ones included.")
    completion_tokens: int = Field(description="Those that it wrote, an end token included.")
    total_tokens: int = Field(description="Both.")


class EmbeddingUsage(BaseModel):
    """How many tokens the texts have."""

    prompt_tokens: int = Field(description="Those that the model read, special ones included.")
    total_tokens: int = Field(description="The same.")
