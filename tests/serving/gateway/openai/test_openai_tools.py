"""/v1/chat/completions with tools: what the model reads, and the calls in its answers."""

import json

import pytest

from keras_transformers.tokenizers.chat_tools import as_json

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "How warm is it?"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Der Wind\u2026",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ASKED = {"model": "caller", "messages": [USER], "tools": [WEATHER]}
CALL = {"id": "call_1", "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}  # fmt: skip
TURN = [
    {"role": "developer", "content": "Be brief."},
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "22"}]},
]
FUNCTIONS = [
    {"name": "weather", "arguments": '{"city": "Z\u00fcrich"}'},
    {"name": "now", "arguments": "{}"},
]


def written(backend):
    """The roles and texts that the model was asked with last."""
    _, inputs = backend.calls[-1]
    (roles,), (texts,) = inputs["roles"].tolist(), inputs["texts"].tolist()
    return [(role.decode(), text.decode()) for role, text in zip(roles, texts, strict=True)]


def test_tools_calls_and_results_become_columns(ask, backend):
    ask(CHAT, **ASKED | {"messages": TURN})
    call = as_json({"name": "weather", "arguments": {"city": "Bern"}})
    expected = [
        ("system", "Be brief."), ("tools", as_json(WEATHER)), ("user", "How warm is it?"),
        ("assistant", ""), ("tool_call", call), ("tool", "22"),
    ]  # fmt: skip
    assert written(backend) == expected
    # Without tools, a conversation that had some goes on.
    ask(CHAT, **ASKED | {"messages": TURN, "tools": None})
    assert written(backend) == [pair for pair in expected if pair[0] != "tools"]


def test_an_answer_has_its_calls(ask):
    (choice,) = ask(CHAT, **ASKED, tool_choice="auto", parallel_tool_calls=True)["choices"]
    calls = choice["message"].pop("tool_calls")
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "I look. <b>", "refusal": None},
        "logprobs": None,
        "finish_reason": "tool_calls",
    }
    assert [call["function"] for call in calls] == FUNCTIONS
    assert {call["type"] for call in calls} == {"function"}
    assert len({call["id"] for call in calls}) == 2
    # What the answer says is what the next request takes.
    answered = {"role": "assistant", "content": choice["message"]["content"], "tool_calls": calls}
    result = {"role": "tool", "content": "22", "tool_call_id": calls[0]["id"]}
    ask(CHAT, **ASKED | {"messages": [USER, answered, result]})


@pytest.mark.parametrize("more", [{"tools": []}, {"tool_choice": "none"}])
def test_without_tools_an_answer_is_text(ask, backend, more):
    (choice,) = ask(CHAT, **ASKED | more)["choices"]
    assert choice["message"] == {"role": "assistant", "content": backend.answer, "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert [role for role, _ in written(backend)] == ["user"]


@pytest.mark.parametrize(
    "answer",
    [
        None, "It is warm.", " \n", "<tool_call>", "a <tool_call>now</tool_call>", "a <tool_cal",
        "1 < 2 <",
        '<tool_call>{"name": "now"}</tool_call>', 'a\n <tool_call>{"name": "now"}</tool_call>\n b',
        '\na<tool_call>x</tool_call> <tool_call>{"name": "now"}</tool_call>',
        '<think>a <tool_call></think>\n\nb<tool_call>{"name": "now"}</tool_call>',
    ],
)  # fmt: skip
def test_a_stream_says_what_the_answer_says(ask, gateway, backend, answer):
    backend.answer = answer or backend.answer
    (whole,) = ask(CHAT, **ASKED, seed=1)["choices"]
    deltas, reasons, tokens = [], [], 0
    with gateway.stream(
        "POST", CHAT, json={**ASKED, "seed": 1, "stream": True, "logprobs": True}
    ) as lines:
        assert lines.status_code == 200, lines.read()
        for line in filter(None, lines.iter_lines()):
            if line != "data: [DONE]":
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                deltas.append(choice["delta"])
                reasons.append(choice["finish_reason"])
                tokens += len((choice["logprobs"] or {"content": []})["content"])
    text = "".join(delta.get("content") or "" for delta in deltas)
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    message = whole["message"]
    assert text == (message["content"] or "")
    assert [(call["index"], call["function"]) for call in calls] == list(
        enumerate(call["function"] for call in message.get("tool_calls", ()))
    )
    assert reasons[-1] == whole["finish_reason"] == ("tool_calls" if calls else "stop")
    assert set(reasons[:-1]) == {None}
    assert tokens == len(backend.answer)


REFUSED = [
    ({"tools": [{"type": "function", "function": {}}]}, "tools.0", "without a name"),
    ({"tools": [WEATHER, WEATHER]}, "tools.1", "another 'weather'"),
    ({"tools": [{"type": "web_search"}]}, "tools.0", "without a name"),
    ({"tools": {"name": "f"}}, "tools", "list"),
    ({"tools": ["f"]}, "tools.0", "tools.0"),
    (
        {"tools": [{**WEATHER, "function": {**WEATHER["function"], "strict": True}}]},
        "tools.0.function.strict",
        "leave it out",
    ),
    ({"tool_choice": "required"}, "tool_choice", "'auto' or 'none'"),
    ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, "tool_choice", "auto"),
    ({"messages": [{**USER, "tool_calls": [CALL]}]}, "messages.0.tool_calls", "only the assistant"),
    (
        {"messages": [USER, {**TURN[2], "tool_calls": [{"id": "1"}]}]},
        "messages.1.tool_calls",
        "without a name",
    ),
    (
        {
            "messages": [
                USER,
                {**TURN[2], "tool_calls": [{"function": {"name": "f", "arguments": "{x"}}]},
            ]
        },
        "messages.1.tool_calls",
        "pass an object",
    ),
    (
        {"messages": [*TURN[1:3], {**TURN[3], "tool_call_id": "call_2"}]},
        "messages.2.tool_call_id",
        "call_1",
    ),
    ({"messages": [USER, {**TURN[2], "tool_calls": []}, USER]}, "messages.1.content", "string"),
    ({"messages": [USER, TURN[3]]}, "messages.1.role", "tool_calls"),
    ({"model": "talker"}, "tools", "export the model again"),
    ({"model": "talker", "tools": None, "messages": TURN}, "tools", "export the model again"),
]


@pytest.mark.parametrize(("body", "field", "part"), REFUSED)
def test_other_tools_are_refused_by_their_field(refused, body, field, part):
    message, param, _ = refused(CHAT, **ASKED | body)
    assert param == field
    assert message.startswith(field)
    assert part in message
