"""What do the requests of all wires have in common?"""

from __future__ import annotations

import gc
import json
import re
import tracemalloc
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from support.copies import replace
from support.examples import examples
from support.long_dialogs import PICTURE, asks, told
from support.time_growth import calls_made

from fsm_agent.call import Request
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function, function
from fsm_agent.messages import (
    Document,
    FunctionCall,
    FunctionResult,
    Image,
    Message,
    Opaque,
    Reasoning,
    Settings,
    Text,
    WebSearch,
)
from fsm_agent.prompts import Output
from fsm_agent.providers import (
    AnthropicCodec,
    AnthropicProfile,
    Codec,
    GeminiCodec,
    GeminiProfile,
    OpenAIChatCodec,
    OpenAIResponsesCodec,
    Profile,
)

SYSTEM, USER = Message.of("system", "Be terse."), Message.of("user", "hi")


class Answer(BaseModel):
    word: str


@function
def search(query: str, most: int) -> str:
    """Find out."""
    return query * most


TEXT = Output(str)


@dataclass(frozen=True)
class Target:
    """Who is asked, and for what."""

    codec: Codec
    profile: Profile
    provider: str = "us"
    model: str = "m"
    output: Output = TEXT
    settings: Settings = Settings()
    functions: tuple[Function, ...] = (search,)

    def sent(self, messages: Sequence[Message]) -> Any:
        """What is sent, as a client does it."""
        request = Request(messages=messages, functions=self.functions, output=self.output, settings=self.settings)
        how = {"model": self.model, "profile": self.profile, "stream": False, "provider": self.provider}
        return json.loads(self.codec.encode(request, **how))

    def afresh(self, messages: Sequence[Message]) -> Any:
        """What is sent of messages without the parts of other providers."""
        return self.sent([readable(message, self.provider) for message in messages])


def readable(message: Message, provider: str) -> Message:
    parts = [part for part in message.parts if getattr(part, "provider", None) in (None, provider)]
    return Message(role=message.role, parts=tuple(parts))


ANSWER = Output(Answer)
PLAIN = [
    Target(OpenAIChatCodec(), Profile()),
    Target(OpenAIResponsesCodec(), Profile(reasoning_name="encrypted_content")),
    Target(AnthropicCodec(), AnthropicProfile()),
    Target(GeminiCodec(), GeminiProfile(hosted_with_functions="plain", hosted_tools={"web_search": "googleSearch"})),
]
WORDS = [replace(target, profile=replace(target.profile, native_schema=False), output=ANSWER) for target in PLAIN]
OTHERS = [
    *[replace(target, provider="them") for target in PLAIN],
    *[replace(target, output=ANSWER) for target in PLAIN],
    *[replace(target, profile=replace(target.profile, system_role="user")) for target in (*PLAIN, *WORDS)],
    replace(PLAIN[0], profile=Profile(call_id_chars=9, reasoning_name="reasoning_details")),
    replace(PLAIN[0], profile=Profile(reasoning_name="thinking")),
    replace(PLAIN[1], settings=Settings(extra_body={"store": True})),
    replace(PLAIN[2], settings=Settings(cache="1h")),
    replace(PLAIN[2], profile=AnthropicProfile(system_in_dialog=True)),
    replace(PLAIN[3], profile=GeminiProfile(media_in_results=False)),
    replace(PLAIN[3], settings=Settings(hosted_tools=(WebSearch(),))),
]
BLIND = [replace(target, profile=replace(target.profile, images=False)) for target in PLAIN]
TARGETS = st.sampled_from([*PLAIN, *WORDS, *OTHERS, *BLIND])
wires = pytest.mark.parametrize("target", PLAIN, ids=lambda target: target.codec.name)


def outcome(send: Callable[[Sequence[Message]], Any], messages: Sequence[Message]) -> Any:
    try:
        return send(messages)
    except UsageError as error:
        return str(error)


OPAQUE = [
    Opaque(wire="openai-chat", data={"reasoning_details": [{"type": "x"}]}),
    Opaque(wire="openai-responses", data={"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "…"}),
    Opaque(wire="openai-responses", data={"type": "custom_tool_call", "id": "c"}),
    Opaque(wire="anthropic", data={"adds_to": "request", "container": "c1"}),
    Opaque(wire="anthropic", data={"type": "redacted_thinking", "data": "x"}),
    Opaque(wire="gemini", data={"text": "t", "thoughtSignature": "s"}),
]
IDS = st.sampled_from(["1.0", "1.1", "2.0"])
THEIRS = st.sampled_from([None, "call_1", "call_2", "a.b", "x" * 70])
TEXTS = st.sampled_from(["", " ", "a", "ä\u2028", "\ud83d", 'q"\\'])
MEDIA = st.sampled_from([PICTURE, Image.of(b"GIF89a"), Document.of(b"%PDF-"), Document.of(b"note", name="n.txt")])
RESULTS = st.builds(
    FunctionResult,
    id=IDS,
    name=st.just("search"),
    text=TEXTS,
    provider_id=THEIRS,
    is_error=st.booleans(),
    attachments=st.lists(MEDIA, max_size=1).map(tuple),
)
CALLS = st.builds(FunctionCall, id=IDS, name=st.just("search"), arguments_json=st.just("{}"), provider_id=THEIRS)
OPAQUES = st.builds(Opaque.changed, st.sampled_from(OPAQUE), provider=st.sampled_from([None, "us", "them"]))
PARTS = {
    "system": st.one_of(TEXTS.map(Text), OPAQUES),
    "user": st.one_of(TEXTS.map(Text), MEDIA, RESULTS, OPAQUES),
    "assistant": st.one_of(TEXTS.map(Text), CALLS, CALLS, OPAQUES, TEXTS.map(lambda text: Reasoning(text=text))),
    "tool": RESULTS,
}


@st.composite
def messages(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from(["system", "user", "assistant", "assistant", "tool", "tool"]))
    return Message(role=role, parts=tuple(draw(st.lists(PARTS[role], max_size=3))))  # type: ignore[arg-type]


@examples(100)
@given(TARGETS, st.lists(messages(), max_size=8))
def test_any_dialog_is_sent_without_the_parts_of_other_providers(target: Target, dialog: list[Message]) -> None:
    assert outcome(target.sent, dialog) == outcome(target.afresh, dialog)


HEAD = [SYSTEM, *[Message.of(role, f"{n}") for n in range(60) for role in ("user", "assistant")]]


def anew(messages: Sequence[Message]) -> list[Message]:
    """Equal messages that no request has held yet."""
    return [Message(role=message.role, parts=message.parts) for message in messages]


@examples(60)
@given(
    st.sampled_from([*PLAIN, *WORDS, *OTHERS, *BLIND]),
    st.lists(messages(), max_size=5),
    st.lists(messages(), max_size=2),
)
def test_a_long_dialog_is_sent_alike_whether_it_grew_or_not(
    target: Target, dialog: list[Message], branch: list[Message]
) -> None:
    grown = [[*HEAD, *dialog[:n]] for n in range(len(dialog) + 1)]
    for sent in (*grown, [*grown[len(dialog) // 2], *branch], *grown[-1:]):
        assert outcome(target.sent, sent) == outcome(target.sent, anew(sent))


def test_threads_that_send_one_long_dialog_do_not_meet() -> None:
    def sent(number: int) -> list[bool]:
        own = [Message.of("user", f"{number} {n}") for n in range(20)]
        grown = [[*HEAD, *own[:n]] for n in range(len(own))]
        return [PLAIN[0].sent(messages) == PLAIN[0].sent(anew(messages)) for messages in grown]

    with ThreadPoolExecutor(8) as threads:
        assert all(all(same) for same in threads.map(sent, range(16)))


class _Overtaken(list[Message]):
    """Messages with which another thread goes on just before the last of them is read for the nth time."""

    def __init__(self, messages: Sequence[Message], nth: int, again: Sequence[Message] = ()) -> None:
        super().__init__(messages)
        self.nth, self.longer = nth, [*messages, Message.of("user", "from another thread"), *again]

    def __iter__(self) -> Iterator[Message]:
        yield from self[:-1]
        self.nth -= 1
        if not self.nth:
            PLAIN[0].sent(self.longer)
        yield self[-1]


def test_a_dialog_that_goes_on_elsewhere_meanwhile_is_not_taken() -> None:
    for nth in range(1, 6):
        dialog = anew(HEAD)
        expected = PLAIN[0].sent(dialog)
        assert PLAIN[0].sent(_Overtaken(dialog, nth)) == expected
        assert PLAIN[0].sent(_Overtaken(dialog, nth, again=dialog[-1:])) == expected


def calls_of(target: Target, messages: Sequence[Message]) -> int:
    """How many calls of Python functions it takes to send them."""
    return calls_made(lambda: outcome(target.sent, messages))


REFUSED = replace(PLAIN[1], settings=Settings(stop=("END",)))  # which the wire has no field for


@pytest.mark.parametrize("count", [20, len(HEAD)])
@pytest.mark.parametrize("target", [*PLAIN, *WORDS, REFUSED])
def test_dialogs_are_not_encoded_afresh_for_each_request(target: Target, count: int) -> None:
    call = FunctionCall(id="1.0", name="search", arguments_json="{}")
    result = FunctionResult(id="1.0", name="search", text="1")
    head = [*HEAD[:count], Message.of("assistant", call), Message.of("tool", result)]
    at_once = [head, *[anew(head) for _ in range(8)]]
    for dialog in at_once:
        outcome(target.sent, dialog)
    assert calls_of(target, [*head, USER]) < 0.7 * calls_of(target, anew([*head, USER]))


class Data(dict[str, Any]):
    """JSON data that can be watched."""


@wires
def test_a_dialog_is_kept_no_longer_than_its_messages(target: Target) -> None:
    data = Data(x=1)
    part = Opaque(wire=target.codec.name, data={"type": "input_x", "x": data})
    dialog = [*HEAD, Message.of("user", part), Message.of("assistant", "Yes."), USER]
    watched = weakref.ref(data)
    target.sent(dialog)
    target.sent([*dialog, USER])
    del data, part, dialog
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("is_result", [False, True])
@wires
def test_dialogs_about_one_file_do_not_hold_a_copy_each(target: Target, is_result: bool) -> None:
    file = Document.of(b"%PDF-" + b"x" * 500_000)
    result = FunctionResult(id="1.0", name="search", text="1", attachments=(file,) if is_result else ())
    said = () if is_result else (file,)
    dialogs = [
        [*HEAD, Message.of("user", f"{n}", *said), asks("1.0"), Message.of("tool", result), USER] for n in range(8)
    ]
    target.sent(dialogs[0])
    tracemalloc.start()
    try:
        for dialog in dialogs:
            target.sent(dialog)
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


@wires
def test_what_is_no_json_is_refused(target: Target) -> None:
    wire = target.codec.name
    for value in (float("nan"), {1, 2}, object()):
        with pytest.raises(UsageError):
            target.sent([USER, Message.of("user", Opaque(wire=wire, data={"type": "input_x", "x": value}))])
        with pytest.raises(UsageError):
            replace(target, settings=Settings(extra_body={"x": value})).sent([USER])


def texts(value: Any) -> list[str]:
    """The texts in a JSON value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, str) else [text for item in inner for text in texts(item)]


@wires
@pytest.mark.parametrize("head", [(), (Message.of("system", " "),), (SYSTEM,), (SYSTEM, SYSTEM)])
def test_the_words_for_an_output_end_the_first_system_message(target: Target, head: tuple[Message, ...]) -> None:
    target = replace(target, profile=replace(target.profile, native_schema=False), output=ANSWER)
    (said,) = [text for text in texts(target.sent([*head, USER])) if "IMPORTANT" in text]
    assert said.strip().startswith("Be terse.\n\nIMPORTANT" if SYSTEM in head else "IMPORTANT")


MERGED = {
    "openai-chat": ("response_format", {"json_schema": {"name": "other"}}),
    "openai-responses": ("text", {"verbosity": "low", "format": {"name": "other"}}),
    "anthropic": ("output_config", {"effort": "low", "format": {"x": 1}}),
    "gemini": ("generationConfig", {"responseJsonSchema": {"title": "other"}}),
}


@wires
def test_an_extra_body_is_merged_into_what_is_written_already(target: Target) -> None:
    name, extra = MERGED[target.codec.name]
    target = replace(target, output=ANSWER, settings=Settings(extra_body={name: extra, "tools": [], "messages": []}))
    assert target.sent([USER]) == target.afresh([USER])
    merged = target.sent([USER])
    assert merged["tools"] == merged["messages"] == []
    assert json.dumps(merged[name]).count("word") == 2, "the schema is there"


@wires
def test_each_provider_gets_its_own_opaque_parts(target: Target) -> None:
    data = {"type": "custom", "text": "locked", "reasoning_details": ["locked"]}
    own = Message.of("assistant", "a", Opaque(wire=target.codec.name, data=data, provider="us"))
    target = replace(target, profile=replace(target.profile, reasoning_name="reasoning_details"))
    for provider in ("us", "them", "us"):
        one = replace(target, provider=provider)
        assert ("locked" in json.dumps(one.sent([USER, own]))) == (provider == "us")
        assert one.sent([USER, own]) == one.afresh([USER, own])


@wires
@pytest.mark.parametrize("system", [(), (SYSTEM,)], ids=["no-system", "system"])
def test_calls_with_one_id_have_their_results_in_order(target: Target, system: tuple[Message, ...]) -> None:
    rounds = [
        [
            Message.of("assistant", *[FunctionCall(id="", name="f", arguments_json="{}") for _ in range(2)]),
            Message.of("tool", *[FunctionResult(id="", name="f", text=text) for text in ("1", "2")]),
        ]
        for _ in range(2)
    ]
    sent = json.dumps(target.sent([*system, USER, *rounds[0], *rounds[1]]))
    if target.codec.name != "gemini":  # which matches them by their order
        of_calls = re.findall(r'"(?:call_id|id)": "([^"]*)", "(?:name|type": "function)', sent)
        of_results = re.findall(r'"(?:call_id|tool_use_id|tool_call_id)": "([^"]*)", "(?:output|content)"', sent)
        assert of_calls == of_results
        assert len(set(of_calls)) == 4


@wires
def test_a_result_is_matched_by_its_own_id_if_it_lacks_the_providers(target: Target) -> None:
    call = FunctionCall(id="1.0", name="f", arguments_json="{}", provider_id="call_x")
    result = FunctionResult(id="1.0", name="f", text="1")
    sent = json.dumps(target.sent([USER, Message.of("assistant", call), Message.of("tool", result)]))
    if target.codec.name != "gemini":
        assert sent.count('"call_x"') == 2


@pytest.mark.parametrize(
    "written", ["[1]", '{"a": ', '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": "\ud800"}']
)
@wires
def test_arguments_that_are_no_json_object_are_told_in_one(target: Target, written: str) -> None:
    said = target.sent([USER, Message.of("assistant", FunctionCall(id="1.0", name="f", arguments_json=written))])
    assert "invalid_arguments" in json.dumps(said, allow_nan=False)


@wires
def test_an_attachment_of_a_result_is_sent_once(target: Target) -> None:
    first = [asks("1.0"), told("1.0", images=1), Message.of("assistant", "a"), USER]
    sent = json.dumps(target.sent([USER, *first, asks("2.0"), told("2.0"), Message.of("assistant", "b"), USER]))
    assert sent.count(str(PICTURE.url)) == 1


def test_a_breakpoint_stands_on_a_turn_that_was_written_before() -> None:
    search = Opaque(wire="anthropic", data={"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}})
    dialog = [USER, Message.of("assistant", "a"), Message.of("user", "b"), Message.of("assistant", search)]
    target = replace(PLAIN[2], settings=Settings(cache="5m"))
    assert target.sent(dialog) == target.afresh(dialog)
    turns = target.sent(dialog)["messages"]
    assert ["cache_control" in json.dumps(turn) for turn in turns] == [False, False, True, False]
