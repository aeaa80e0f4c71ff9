"""Is a reply from a real gateway read as it was meant, and sent back so that the next request is accepted?"""

from __future__ import annotations

import json
from itertools import permutations, product
from typing import Any

import pytest

from fsm_agent import FunctionCall, Message, Reply, Settings, Usage
from fsm_agent.call import Request
from fsm_agent.errors import BadReply
from fsm_agent.messages import Delta, FunctionResult, Reasoning, ReasoningDelta, Text, TextDelta
from fsm_agent.providers import AnthropicCodec, GeminiCodec, OpenAIChatCodec, OpenAIResponsesCodec, Profile, providers

CHAT, RESPONSES, ANTHROPIC, GEMINI = OpenAIChatCodec(), OpenAIResponsesCodec(), AnthropicCodec(), GeminiCodec()
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def streamed(codec: Any, *events: dict[str, Any], is_over: bool = False, end: bytes = b"") -> tuple[Reply, list[Delta]]:
    """Return the reply and the deltas of a stream, whose connection may stay open."""
    decoder = codec.decoder({})
    deltas = [delta for event in events for delta in decoder.feed(f"data: {json.dumps(event)}\n\n".encode())]
    deltas += decoder.feed(end)
    if is_over:
        assert decoder.is_done
    else:
        deltas += decoder.end()
    return decoder.finish(), deltas


def whole(codec: Any, document: dict[str, Any]) -> Reply:
    reply: Reply = codec.decode(200, {}, json.dumps(document).encode())
    return reply


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def completion(**message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


def piece(arguments: Any, **more: Any) -> dict[str, Any]:
    return chunk(tool_calls=[{"index": 0, "function": {"arguments": arguments, **more.pop("function", {})}, **more}])


def sent(codec: Any, *messages: Message, model: str = "m") -> dict[str, Any]:
    request = Request(messages=[Message.of("user", "?"), *messages], settings=Settings())
    body: dict[str, Any] = json.loads(codec.encode(request, model=model, profile=Profile(), stream=False))
    return body


class TestArguments:
    FIRST = piece("", id="c", function={"name": "add"})
    PIECES = (piece('{"a": 1, '), piece('"b": 2}'))

    @pytest.mark.parametrize(
        "events",
        [
            (piece("{}", id="c", function={"name": "add"}), *PIECES),  # Bedrock behind chat completions
            (piece({}, id="c", function={"name": "add"}), *PIECES),
            (FIRST, *PIECES, piece('{"a": 1, "b": 2}')),  # GLM
            (FIRST, *PIECES, piece('{"a":1,"b":2}')),
            (FIRST, *PIECES, piece("{}")),
            (piece("null", id="c", function={"name": "add"}), *PIECES),
            (piece("{ }\n", id="c", function={"name": "add"}), *PIECES, piece(" null")),
        ],
    )
    def test_they_are_taken_once(self, events: tuple[dict[str, Any], ...]) -> None:
        reply, _ = streamed(CHAT, *events, chunk("tool_calls"))
        assert [call.arguments for call in reply.message.function_calls] == [{"a": 1, "b": 2}]

    @pytest.mark.parametrize(
        "pieces",
        [["{}", '{"a": 1}'], ['{"a": 1}', "{}"], ['{"a": ', "1}", '{"a":1}'], ["null", '{"a": 1}'], ['{"a": 1}']],
    )
    def test_those_in_blocks_are_taken_once(self, pieces: list[str]) -> None:
        block = {"type": "tool_use", "id": "c", "name": "add", "input": {}}
        begun = {"type": "content_block_start", "index": 0, "content_block": block}
        deltas = [{"type": "input_json_delta", "partial_json": text} for text in pieces]
        events = [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
        ended = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
        reply, _ = streamed(ANTHROPIC, begun, *events, ended, {"type": "message_stop"})
        assert [call.arguments for call in reply.message.function_calls] == [{"a": 1}]

    @pytest.mark.parametrize("text", ['{"a": 1}{"a": 2}', '{"a": 1} x', "[1][1]", '{"a": 1}{"a": ', "1 2"])
    def test_what_means_two_things_stays_as_it_is(self, text: str) -> None:
        reply, _ = streamed(CHAT, self.FIRST, piece(text), chunk("tool_calls"))
        assert [call.arguments_json for call in reply.message.function_calls] == [text]

    @pytest.mark.parametrize("text", ["null", " ", "", "\n"])
    def test_none_go_back_as_an_empty_object(self, text: str) -> None:
        asked = Message.of("assistant", FunctionCall(id="1.0", name="now", arguments_json=text))
        assert asked.function_calls[0].arguments == {}
        result = Message(role="tool", parts=(FunctionResult(id="1.0", name="now", text="noon"),))
        (call,) = sent(CHAT, asked, result)["messages"][1]["tool_calls"]
        assert call["function"]["arguments"] == "{}"
        (block,) = sent(ANTHROPIC, asked, result)["messages"][1]["content"]
        assert block["input"] == {}


SIGNED = {
    "id": "c1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"a":1}'},
    "extra_content": {"google": {"thought_signature": "SIG"}},
}


class TestSignatures:
    def replies(self) -> list[Reply]:
        events = (chunk(tool_calls=[{"index": 0, **SIGNED}]), chunk("tool_calls"))
        return [whole(CHAT, completion(content=None, tool_calls=[SIGNED])), streamed(CHAT, *events)[0]]

    def test_they_go_back_to_gemini_and_to_nobody_else(self) -> None:
        for reply in self.replies():
            result = Message(role="tool", parts=(FunctionResult(id="", name="add", text="1", provider_id="c1"),))
            (call,) = sent(CHAT, reply.message, result, model="gemini-3-pro")["messages"][1]["tool_calls"]
            assert call["extra_content"] == SIGNED["extra_content"]
            (call,) = sent(CHAT, reply.message, result, model="gpt-5")["messages"][1]["tool_calls"]
            assert "extra_content" not in call


@pytest.mark.parametrize("name", ["functions.add<|channel|>commentary", "add number", "x" * 80, "ünïcode", ""])
@pytest.mark.parametrize("provider", ["openai-chat", "openai", "anthropic", "google"])
def test_a_name_that_no_api_takes_goes_out_cleaned(provider: str, name: str) -> None:
    codec: Any = providers()[provider].codec
    call = FunctionCall(id="1.0", name=name, arguments_json='{"a": 1}')
    result = Message(role="tool", parts=(FunctionResult(id="1.0", name=name, text="no such function"),))
    request = Request(messages=[Message.of("user", "?"), Message.of("assistant", call), result])
    body = json.loads(codec.encode(request, model="m", profile=providers()[provider].profile, stream=False))
    assert set(names_in(body)) <= {"_" if not name else codec_name(name)}


def codec_name(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64]


def names_in(value: Any) -> list[str]:
    """The names of functions that a request has anywhere."""
    if isinstance(value, dict):
        own = [value["name"]] if isinstance(value.get("name"), str) else []
        return own + [name for item in value.values() for name in names_in(item)]
    return [name for item in value for name in names_in(item)] if isinstance(value, list) else []


class TestThePhasesOfAReply:
    @staticmethod
    def item(phase: str, text: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {"type": "message", "id": phase, "role": "assistant", "phase": phase, "content": content}

    OUTPUT = ("commentary", "I first thought of {}."), ("final_answer", "It is 42.")

    def replies(self) -> list[Reply]:
        items = [self.item(*one) for one in self.OUTPUT]
        response = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": items}
        added = [{"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)]
        return [
            whole(RESPONSES, response),
            streamed(RESPONSES, *added, {"type": "response.completed", "response": response}, is_over=True)[0],
        ]

    def test_the_answer_is_what_says_so(self) -> None:
        for reply in self.replies():
            assert (reply.message.text, reply.message.reasoning) == ("It is 42.", "I first thought of {}.")

    def test_all_of_it_goes_back_with_its_phase(self) -> None:
        for reply in self.replies():
            back = [item for item in sent(RESPONSES, reply.message)["input"] if item.get("role") == "assistant"]
            assert [(item["phase"], item["content"][0]["text"]) for item in back] == list(self.OUTPUT)

    def test_beside_calls_what_is_said_is_text(self) -> None:
        call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
        items = [self.item("commentary", "Let me add."), call]
        reply = whole(RESPONSES, {"object": "response", "status": "completed", "output": items})
        assert reply.message.text == "Let me add."


class TestThoughtsInTheText:
    @pytest.mark.parametrize("size", [1, 3, 100])
    @pytest.mark.parametrize(
        ("text", "thought", "answer"),
        [
            ("<think>\nRome?</think>\n\nParis", "\nRome?", "Paris"),
            ("\n <think>a < b</thin</think>Paris", "a < b</thin", "Paris"),
            ("<think>cut off", "cut off", ""),
            ("<think></think>Paris", "", "Paris"),
            ("Paris <think>is</think>", "", "Paris <think>is</think>"),
            ("<thinner>Paris", "", "<thinner>Paris"),
            ("<thi", "", "<thi"),
            (" \n", "", " \n"),
        ],
    )
    def test_those_at_the_beginning_are_reasoning(self, text: str, thought: str, answer: str, size: int) -> None:
        pieces = [chunk(content=text[at : at + size]) for at in range(0, len(text), size)]
        reply, deltas = streamed(CHAT, *pieces, chunk("stop"))
        for one in (reply, whole(CHAT, completion(content=text))):
            assert (one.message.reasoning, one.message.text) == (thought, answer)
        assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == thought
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == answer

    @pytest.mark.parametrize(
        ("text", "thought", "answer"),
        [
            ("Rome?\n</think>\n\nParis", "Rome?\n", "Paris"),  # DeepSeek-R1 and Qwen3-Thinking in vLLM
            ("Rome?\n</think>", "Rome?\n", ""),
            ("A </think> tag\nends it.", "", "A </think> tag\nends it."),
            ("Write\n<think>\n…\n</think>\nfirst.", "", "Write\n<think>\n…\n</think>\nfirst."),
        ],
    )
    def test_those_before_a_closing_tag_alone_are_reasoning(self, text: str, thought: str, answer: str) -> None:
        for reply in (whole(CHAT, completion(content=text)), streamed(CHAT, chunk("stop", content=text))[0]):
            assert (reply.message.reasoning, reply.message.text) == (thought, answer)


class TestUsage:
    @pytest.mark.parametrize(
        "later",
        [
            {"prompt_tokens": 0, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}},
            {"completion_tokens": 5},
            {"prompt_tokens": None, "completion_tokens": 5, "prompt_tokens_details": None},
        ],
        ids=["zeros", "left out", "null"],
    )
    def test_a_later_report_takes_no_count_away(self, later: dict[str, Any]) -> None:
        first = {"prompt_tokens": 15, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
        spelled = {"prompt": "input", "completion": "output"}
        renamed = [
            {
                name.replace(old, new): value
                for name, value in each.items()
                for old, new in spelled.items()
                if old in name
            }
            for each in (first, later)
        ]
        counts = [
            {"promptTokenCount": 15, "cachedContentTokenCount": 4, "candidatesTokenCount": 1},
            {"candidatesTokenCount": 5, "cachedContentTokenCount": 0},
        ]
        candidates = [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}]
        item = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
        for codec, events in (
            (CHAT, [{**chunk("stop", content="Hi"), "usage": first}, {"choices": [], "usage": later}]),
            (GEMINI, [{"candidates": candidates, "usageMetadata": each} for each in counts]),
            (
                RESPONSES,
                [
                    {"type": "response.in_progress", "response": {"usage": renamed[0]}},
                    {"type": "response.completed", "response": {"output": [item], "usage": renamed[1]}},
                ],
            ),
        ):
            reply, _ = streamed(codec, *events)
            assert reply.usage == Usage(input_tokens=15, output_tokens=5, cached_tokens=4)

    def test_a_count_of_zero_does_not_become_unknown(self) -> None:
        first, later = {"prompt_tokens": 15, "completion_tokens": 0}, {"prompt_tokens": 15, "completion_tokens": None}
        reply, _ = streamed(CHAT, {**chunk("stop"), "usage": first}, {"choices": [], "usage": later})
        assert reply.usage == Usage(input_tokens=15, output_tokens=0)


class TestChoices:
    @staticmethod
    def of(codec: Any, index: int, text: str, *, is_whole: bool = False, is_last: bool = True) -> dict[str, Any]:
        if codec is GEMINI:
            end = {"finishReason": "STOP"} if is_last else {}
            return {"index": index, "content": {"parts": [{"text": text}]}, **end}
        finish = "stop" if is_last else None
        return {"index": index, "message" if is_whole else "delta": {"content": text}, "finish_reason": finish}

    @pytest.mark.parametrize(("codec", "name"), [(CHAT, "choices"), (GEMINI, "candidates")])
    @pytest.mark.parametrize("indices", [*permutations([0, 1, 2]), (3, 2), (2,)])
    def test_the_one_with_the_index_0_is_read_or_else_the_first(
        self, codec: Any, name: str, indices: tuple[int, ...]
    ) -> None:
        read = 0 if 0 in indices else indices[0]
        at_once = {name: [self.of(codec, index, f"{index}{index}", is_whole=True) for index in indices]}
        assert whole(codec, at_once).message.text == f"{read}{read}"
        pieces = [(index, is_last) for is_last in (False, True) for index in indices]
        in_turns = [{name: [self.of(codec, index, f"{index}", is_last=is_last)]} for index, is_last in pieces]
        one_by_one = sorted(in_turns, key=lambda chunk: indices.index(chunk[name][0]["index"]))
        for chunks, end in product((in_turns, one_by_one), (b"", b"data: [DONE]\n\n")):
            reply, deltas = streamed(codec, *chunks, end=end)
            told = "".join([delta.text for delta in deltas if isinstance(delta, TextDelta)])
            assert (reply.message.text, told, reply.finish) == (f"{read}{read}", f"{read}{read}", "stop")


@pytest.mark.parametrize("codec", [CHAT, RESPONSES, ANTHROPIC, GEMINI], ids=lambda codec: codec.name)
def test_a_comment_that_a_proxy_sends_as_data_says_nothing(codec: Any) -> None:
    """As Vertex AI does: https://github.com/anomalyco/opencode/issues/50871 (2026-09)."""
    decoder = codec.decoder({})
    assert decoder.feed(b"data: : keepalive\n\ndata::\n\n") == []
    assert not decoder.has_failed


BEGUN = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 15, "cache_read_input_tokens": 4}}}
SAID = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}}
STOPPED = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn"},
    "usage": {"input_tokens": 0, "output_tokens": 5},
}
OVER = {"type": "message_stop"}


class TestTheEnd:
    def test_counts_do_not_shrink(self) -> None:
        reply, _ = streamed(ANTHROPIC, BEGUN, SAID, STOPPED, OVER)
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (19, 5)

    def test_a_reason_to_stop_is_enough(self) -> None:
        reply, _ = streamed(ANTHROPIC, BEGUN, SAID, STOPPED)
        assert (reply.message.text, reply.finish) == ("Hi", "stop")

    @pytest.mark.parametrize(
        ("codec", "events"),
        [
            (ANTHROPIC, [BEGUN, SAID, STOPPED, OVER]),
            (RESPONSES, [{"type": "response.completed", "response": {"status": "completed", "output": []}}]),
        ],
        ids=["anthropic", "responses"],
    )
    def test_the_last_event_is_it_whatever_the_connection_does(self, codec: Any, events: list[dict[str, Any]]) -> None:
        streamed(codec, *events, is_over=True)

    def test_gemini_may_say_stop_in_every_chunk(self) -> None:
        chunks = [
            {
                "candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": n},
            }
            for n, text in enumerate(("Hel", "lo"), 1)
        ]
        reply, _ = streamed(GEMINI, *chunks)
        assert (reply.message.text, reply.usage.output_tokens) == ("Hello", 2)


@pytest.mark.parametrize(
    ("codec", "document"),
    [
        (
            CHAT,
            completion(content="", images=[{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]),
        ),
        (
            GEMINI,
            {
                "candidates": [
                    {
                        "content": {"parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]},
                        "finishReason": "STOP",
                    }
                ]
            },
        ),
    ],
    ids=["chat", "gemini"],
)
def test_a_picture_alone_is_refused_at_once(codec: Any, document: dict[str, Any]) -> None:
    with pytest.raises(BadReply, match="image") as caught:
        whole(codec, document)
    assert (caught.value.status, caught.value.retryable) == (200, False)


def test_what_a_voice_says_is_the_text() -> None:
    audio = {"id": "audio_1", "data": "UklGRg==", "expires_at": 1, "transcript": "It is noon."}
    for content in (None, "", "It is noon."):
        assert whole(CHAT, completion(content=content, audio=audio)).message.text == "It is noon."
    pieces = [{"id": "audio_1", "transcript": "It is"}, {"transcript": " noon."}, {"data": "UklGRg=="}]
    reply, deltas = streamed(CHAT, *[chunk(audio=piece) for piece in pieces], chunk("stop"))
    assert reply.message.text == "It is noon."
    assert deltas == [TextDelta("It is"), TextDelta(" noon.")]


def test_a_picture_beside_words_is_none_of_their_business() -> None:
    reply = whole(CHAT, completion(content="Here.", images=[PICTURE]))
    assert reply.message.parts == (Text("Here."),)
    assert not any(isinstance(part, Reasoning) for part in reply.message.parts)


def test_the_user_opens_a_dialog_that_the_assistant_begins() -> None:
    greeting, question = Message.of("assistant", "Good day."), Message.of("user", "Who are you?")
    request = Request(messages=[Message.of("system", "Be kind."), greeting, question])
    for codec, key, role in ((ANTHROPIC, "messages", "assistant"), (GEMINI, "contents", "model")):
        turns = json.loads(codec.encode(request, model="m", profile=Profile(), stream=False))[key]
        assert [turn["role"] for turn in turns] == ["user", role, "user"]
        assert "Good day." in json.dumps(turns[1])
