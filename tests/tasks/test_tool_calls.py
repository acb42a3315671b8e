"""Conversations with tools, in Python, in an export and by the client."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers.pipelines import TextGenerator
from keras_transformers.results import Generation, Reply, ToolCall
from keras_transformers.serving import Client, Limits, ModelSettings, Server
from keras_transformers.tasks.generation.chat import Chat
from keras_transformers.tasks.generation.conversations import conversation_columns
from keras_transformers.tasks.generation.tools import with_calls
from keras_transformers.tokenizers import CHAT_TEMPLATES, DescribedTokenizer
from keras_transformers.tokenizers.chat_tools import as_json

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Der Wind\u2026",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {"id": "1", "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}  # fmt: skip
USER = {"role": "user", "content": "abc"}
ASKED = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
RESULT = {"role": "tool", "tool_call_id": "1", "content": "22"}
TURN = [*ASKED, RESULT]


@pytest.fixture(scope="module")
def generator():
    """A Llama of letters with Qwen 3's chat template."""
    talker = tiny.talker()
    model = kt.families.llama.llama(
        vocabulary_size=talker.tokenizer.vocabulary_size,
        num_layers=1,
        num_heads=2,
        num_key_value_heads=1,
        hidden_dim=16,
        intermediate_dim=16,
        max_sequence_length=2000,
    )
    return TextGenerator(
        tiny.lively(model), talker.tokenizer, max_length=4, top_k=1, chat_template="qwen3"
    )


def text_of_turn():
    before, after = "<|im_start|>", "<|im_end|>\n"
    tools = CHAT_TEMPLATES["qwen3"].tools
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
    return (
        f"{before}system\n{tools.opening}{as_json(WEATHER)}{tools.closing}{after}"
        f"{before}user\nabc{after}{before}assistant\n{call}{after}"
        f"{before}user\n<tool_response>\n22\n</tool_response>{after}{before}assistant\n"
    )


@pytest.mark.usefixtures("untraced")
def test_an_answer_continues_the_text_with_tools(generator):
    reply = generator.chat(TURN, tools=[WEATHER])
    plain = generator(text_of_turn())
    assert isinstance(reply, Reply)
    assert (reply.text, reply.num_prompt_tokens) == (plain.text, plain.num_prompt_tokens)
    assert (reply.content, reply.tool_calls) == (reply.text, ())
    assert reply.message == {"role": "assistant", "content": reply.text}
    first, second = generator.chat([[USER], TURN], tools=[WEATHER])
    assert second.text == reply.text
    assert first.num_prompt_tokens < second.num_prompt_tokens
    assert type(generator.chat(TURN)) is Generation  # without tools, but with their results


@pytest.mark.slow
def test_a_stream_ends_with_the_calls(generator):
    def answer():
        nonlocal reply
        reply = yield from generator.stream_chat(TURN, tools=[WEATHER])

    reply = None
    assert "".join(answer()) == reply.text
    assert isinstance(reply, Reply)
    assert reply.text == generator.chat(TURN, tools=[WEATHER]).text


def test_marks_of_calls_are_part_of_answers_where_they_are_special_tokens(generator):
    description = generator.tokenizer.description
    added = description["added_tokens"]
    marks = [
        {**added[-1], "content": mark, "id": 256 + len(added) + number}
        for number, mark in enumerate(("<tool_call>", "</tool_call>", "<other>"))
    ]
    tokenizer = DescribedTokenizer(
        {**description, "added_tokens": [*added, *marks]}, end_token="<|im_end|>"
    )
    ids = tokenizer.tokenize(["a<tool_call>b</tool_call><other>c<|im_end|>"])
    assert tokenizer.detokenize(ids).numpy().tolist() == [b"abc"]
    for template, expected in (("qwen3", b"a<tool_call>b</tool_call>c"), ("smollm2", b"abc")):
        chat = Chat(template, tokenizer)
        assert chat.answer_tokenizer.detokenize(ids).numpy().tolist() == [expected]
    assert tokenizer.showing(["a", "<|unknown|>"]) is tokenizer


def reply_with(text, name="qwen3"):
    return with_calls(Generation(text, 9, -1.5, True, 30), CHAT_TEMPLATES[name])


def test_a_reply_has_the_calls_of_its_text():
    text = (
        'I look. <tool_call>\n{"name": "weather", "arguments": {"city": "Z\u00fcrich", "n": [1]}}\n'
        '</tool_call>\n<tool_call>{"name": "now"}</tool_call>'
    )
    reply = reply_with(text)
    calls = (ToolCall("weather", {"city": "Z\u00fcrich", "n": [1]}), ToolCall("now", {}))
    assert (reply.text, reply.content, reply.tool_calls) == (text, "I look.", calls)
    assert (reply.num_prompt_tokens, reply.finished) == (30, True)
    function = {"name": "now", "arguments": {}}
    assert reply.message["tool_calls"][1] == {"type": "function", "function": function}
    # The message is one that the next conversation takes.
    assert json.loads(json.dumps(reply.message)) == reply.message


def test_a_call_of_llama_3_1_is_a_whole_answer():
    text = '{"name": "weather", "parameters": {"city": "Bern"}}'
    assert reply_with(text, "llama3.1").tool_calls == (ToolCall("weather", {"city": "Bern"}),)
    assert reply_with(text, "llama3.1").content == ""
    for other in (
        f"Yes: {text}",
        '{"name": "weather"}',
        text[:-1],
        "[]",
        "22",
        text.replace("p", "q"),
    ):
        assert reply_with(other, "llama3.1").tool_calls == ()
        assert reply_with(other, "llama3.1").content == other
    shown = CHAT_TEMPLATES["llama3.1"].tools.settled
    assert [shown(part) for part in (" ", "{", text, "Yes {")] == ["", "", "", "Yes {"]


@pytest.mark.parametrize(
    "block",
    [
        "{name: now}", "now", "", "[]", "1", '{"arguments": {}}', '{"name": 1, "arguments": {}}',
        '{"name": "", "arguments": {}}', '{"name": "now", "arguments": "x"}', "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_call_stays_text(block):
    text = f"a <tool_call>{block}</tool_call> b"
    assert (reply_with(text).content, reply_with(text).tool_calls) == (text, ())
    both = f'{text}<tool_call>{{"name": "now"}}</tool_call>'
    assert (reply_with(both).content, reply_with(both).tool_calls) == (text, (ToolCall("now", {}),))


def test_calls_of_mistral_nemo_are_a_list():
    listed = '[TOOL_CALLS][{"name": "now", "arguments": {}, "id": "a"}, {"name": "weather"}]'
    reply = reply_with(f"I look. {listed}", "mistral-nemo")
    assert reply.tool_calls == (ToolCall("now", {}), ToolCall("weather", {}))
    assert reply.content == "I look."
    tools = CHAT_TEMPLATES["mistral-nemo"].tools
    assert [tools.settled(text) for text in (f"Yes. {listed}", "Yes. [TOOL")] == ["Yes."] * 2
    for other in (listed[:-1], f"{listed} a", '[TOOL_CALLS][{"name": 1}]', "[TOOL_CALLS]", "[]"):
        assert reply_with(other, "mistral-nemo").tool_calls == ()
        assert reply_with(other, "mistral-nemo").content == other


@pytest.mark.parametrize(
    ("ids", "result", "expected"),
    [
        ((None, None), None, ("000000002", "000000003", "000000002")),
        (("", "\ud800"), None, ("000000002", "91a681b99", "000000002")),
        (("aB3dE6gH9", None), None, ("aB3dE6gH9", "000000003", "aB3dE6gH9")),
        ((None, "aB3dE6gH9"), "aB3dE6gH9", ("000000002", "aB3dE6gH9", "aB3dE6gH9")),
        (("call_1", '"}, {"a'), "call_1", ("74196fe72", "775aae24d", "74196fe72")),
        ((None, None), "aB3dE6gH9", ("000000002", "000000003", "000000002")),
    ],
)
def test_calls_and_results_of_mistral_nemo_share_an_id_of_nine_characters(ids, result, expected):
    """The given one if it fits, else always the same for an id, or for a call's number."""
    now = {"function": {"name": "now", "arguments": {}}}
    given = [now if id_ is None else {**now, "id": id_} for id_ in ids]
    conversation = [
        USER,
        {"role": "assistant", "tool_calls": [now, now]},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "tool_calls": given},
        {"role": "tool", "content": "3", **({"tool_call_id": result} if result else {})},
    ]
    _, (texts,) = conversation_columns([conversation], (), lambda: CHAT_TEMPLATES["mistral-nemo"])
    written = [
        re.search(r'"(?:call_)?id": "(\w+)"', text.decode())[1] for text in texts if b'id"' in text
    ]
    assert tuple(written[-3:]) == expected
    assert written[:4] == ["000000000", "000000001"] * 2


def test_thoughts_and_unfinished_calls_are_no_calls():
    call = '<tool_call>{"name": "now"}</tool_call>'
    for text in (f"<think>{call}", f"<think>a</think><think>{call}", call[:-1], call[11:]):
        assert reply_with(text).tool_calls == ()
        assert reply_with(text).content == text
    thought = reply_with(f"<think>{call}</think>\n\n{call}")
    assert thought.content == f"<think>{call}</think>"
    assert thought.tool_calls == (ToolCall("now", {}),)
    assert reply_with(call, "gemma").tool_calls == ()


CALLS = "conversation 0, message 1: tool_calls"


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    ("messages", "tools", "parts"),
    [
        ([USER], [{"type": "function", "function": {}}], r"tools\[0\].*without a name.*weather"),
        ([USER], [WEATHER, "weather"], r"tools\[1\].*'weather'.*without a name"),
        ([USER], [WEATHER, WEATHER], r"tools\[1\] is another 'weather'"),
        ([USER], WEATHER, "tools are .*pass a list"),
        ([USER], [{**WEATHER, "type": "web"}], r"tools\[0\].*'web'.*only functions"),
        ([USER], [print], r"tools\[0\].*print.*JSON schema.*get_json_schema"),
        ([USER], [{**WEATHER, "x": {1, 2}}], r"tools\[0\] is .*not JSON: .*set.*pass strings"),
        ([USER], [{**WEATHER, "x": float("nan")}], r"tools\[0\] is .*not JSON: .*float.*finite"),
        ([USER, {**ASKED[1], "tool_calls": [{}]}, RESULT], None, rf"{CALLS}\[0\].*without a name"),
        ([USER, {**ASKED[1], "tool_calls": "x"}, RESULT], None, rf"{CALLS} are 'x'.*pass \["),
        ([{**USER, "tool_calls": [CALL]}], None, "message 0: .*'user'.*only the assistant"),
        ([*ASKED, {**RESULT, "tool_call_id": "2"}], None, "message 2: .*'2' is none .*1"),
        ([*ASKED, {**RESULT, "content": {"a": 1}}], None, "message 2: .*tool.*JSON"),
        ([*ASKED, {**RESULT, "x": "y"}], None, "message 2: .*expected"),
        ([USER, RESULT], None, "message 1: role 'tool' without a call.*tool_calls"),
        ([RESULT, USER], None, "message 0: role 'tool' without a call"),
        ([*TURN, USER, RESULT], None, "message 4: role 'tool' without a call"),
        ([*ASKED], None, "last message"),
    ],
)
def test_other_tools_and_calls_are_refused(messages, tools, parts, generator):
    with pytest.raises(ValueError, match=f"(?s){parts}"):
        generator.chat(messages, tools=tools)


@pytest.mark.parametrize("arguments", ["{city: Bern}", "[1]", 5, "null", "[" * 100_000])
def test_malformed_arguments_are_refused(arguments, generator):
    call = {"function": {"name": "weather", "arguments": arguments}}
    with pytest.raises(ValueError, match=r"message 1: tool_calls\[0\].*arguments.*pass an object"):
        generator.chat([USER, {**ASKED[1], "tool_calls": [call]}, RESULT])


@pytest.mark.usefixtures("untraced")
def test_a_template_without_tools_is_refused():
    talker = tiny.talker()
    for messages, tools in (([USER], [WEATHER]), (TURN, None)):
        with pytest.raises(ValueError, match="tools: .*'smollm2' has none; .*qwen3"):
            talker.chat(messages, tools=tools)
    assert isinstance(talker.chat([USER], tools=[]), Reply)


@pytest.mark.slow
def test_an_export_and_its_clients_answer_with_tools_as_python_does(generator, tmp_path):
    folder = kt.export(generator, tmp_path / "exports/tools")
    chat = tf.saved_model.load(str(folder)).signatures["chat"]
    call = as_json({"name": "weather", "arguments": {"city": "Bern"}})
    roles = ["tools", "user", "assistant", "tool_call", "tool"]
    texts = [as_json(WEATHER), "abc", "", call, "22"]
    found = chat(roles=tf.constant([roles]), texts=tf.constant([texts]))
    expected = generator.chat(TURN, tools=[WEATHER])
    assert found["text"].numpy()[0].decode() == expected.text
    assert found["num_prompt_tokens"].numpy()[0] == expected.num_prompt_tokens
    settings, limits = [ModelSettings("tools", folder.parent)], Limits(timeout_s=120.0)
    with Server(settings, rest_port=0, grpc_port=0, limits=limits) as server:
        assert server.wait_until_loaded(300)
        for target in (f"http://127.0.0.1:{server.rest_port}", f"127.0.0.1:{server.grpc_port}"):
            with Client(target, timeout_s=120) as client:
                given = {"model": "tools", "tools": [WEATHER]}
                reply = client.chat(TURN, **given)
                assert isinstance(reply, Reply)
                assert (reply.text, reply.tool_calls) == (expected.text, expected.tool_calls)
                assert [each.text for each in client.chat([[USER], TURN], **given)] == [
                    each.text for each in generator.chat([[USER], TURN], tools=[WEATHER])
                ]
                short = client.chat(TURN, **given, max_length=3)
                assert short.text == generator.chat(TURN, tools=[WEATHER], max_length=3).text
                stream = client.chat(TURN, **given, stream=True)
                assert "".join(stream) == expected.text
                chosen = client.choose_chat(TURN, ["Paris", "Rome"], **given)
                here = generator.choose_chat(TURN, ["Paris", "Rome"], tools=[WEATHER])
                np.testing.assert_allclose(chosen.probabilities, here.probabilities, rtol=1e-4)
                with pytest.raises(ValueError, match=r"tools\[0\].*without a name"):
                    client.chat([USER], model="tools", tools=[{}])
