"""Does Anthropic get its breakpoints where they are useful, and never more than it accepts or in other places?"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from support.messages_bodies import CODEC, marks, message, whole

from fsm_agent.call import Request
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import Document, FunctionCall, FunctionResult, Image, Message, Opaque, Settings
from fsm_agent.providers import AnthropicProfile

MARK, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
ADD, WAIT = Function(name="add"), Function(name="wait")
SYSTEM, USER = Message.of("system", "Be terse."), Message.of("user", "hi")
MOST = 4  # that the service takes
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def encoded(*messages: Message, cache: Any = "5m", functions: Any = (), **settings: Any) -> dict[str, Any]:
    request = Request(messages=messages, functions=functions, settings=Settings(cache=cache, **settings))
    return json.loads(CODEC.encode(request, model="m1", profile=AnthropicProfile(), stream=False))


def own(**data: Any) -> Opaque:
    return Opaque(wire="anthropic", data=data)


def answer(*blocks: dict[str, Any]) -> Message:
    return whole(message(*blocks)).message


@pytest.mark.parametrize(("cache", "mark"), [("5m", MARK), ("1h", HOUR)])
def test_breakpoints_stand_behind_functions_system_prompt_and_messages(cache: str, mark: dict[str, str]) -> None:
    body = encoded(SYSTEM, USER, answer({"type": "text", "text": "a"}), USER, functions=(ADD, WAIT), cache=cache)
    assert "cache_control" not in body["tools"][0]
    assert body["tools"][1]["cache_control"] == mark
    assert body["system"] == [{"type": "text", "text": "Be terse.", "cache_control": mark}]
    assert body["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": mark}]},
    ]
    assert len(marks(body)) == 3


def test_nothing_is_kept_unless_it_is_told() -> None:
    assert marks(encoded(SYSTEM, USER, functions=(ADD,), cache=None)) == []


def test_breakpoint_stands_on_what_there_is() -> None:
    assert marks(encoded(USER)) == [".messages[0].content[0]"]
    withdrawn = encoded(USER, Message.of("assistant", FunctionCall(id="1.0", name="f", arguments_json="")))
    assert sorted(marks(withdrawn)) == [".messages[1].content[0]", ".tools[0]"]


RESULT = FunctionResult(id="1.0", name="add", text="2", attachments=(Image.of(b"GIF89a"),))


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ((Message.of("user", "a", Image.of(b"GIF89a")),), ".messages[0].content[1]"),
        ((Message.of("user", Document.of(b"hi"), " "),), ".messages[0].content[0]"),
        ((USER, Message.of("tool", RESULT)), ".messages[0].content[1]"),
        ((USER, answer(THOUGHT, {"type": "tool_use", "id": "t", "name": "f", "input": {}})), ".messages[1].content[1]"),
        ((USER, answer({"type": "text", "text": "a"}, THOUGHT)), ".messages[1].content[0]"),
        ((USER, answer(THOUGHT, {"type": "redacted_thinking", "data": "x"})), ".messages[0].content[0]"),
        ((USER, answer(THOUGHT, {"type": "text", "text": " "})), ".messages[0].content[0]"),
        ((USER, Message.of("user", own(type="hologram"))), ".messages[0].content[0]"),
        ((Message.of("user", own(type="hologram")),), None),
    ],
)
def test_breakpoint_stands_on_the_last_block_that_takes_one(messages: tuple[Message, ...], place: str | None) -> None:
    body = encoded(*messages)
    found = [path for path in marks(body) if path.startswith(".messages")]
    assert found == ([place] if place else [])


def test_system_prompt_in_parts_has_its_breakpoint_on_the_last() -> None:
    fixed = own(type="text", text="Be terse.", cache_control=MARK)
    system = encoded(Message.of("system", fixed, "Today is Monday."), USER)["system"]
    assert [block.get("cache_control") for block in system] == [MARK, MARK]
    assert encoded(Message.of("system", fixed), USER, cache="1h")["system"] == [fixed.data]


def cached(count: int) -> list[Opaque]:
    return [own(type="text", text=str(n), cache_control=MARK) for n in range(count)]


@pytest.mark.parametrize("count", [1, MOST - 1, MOST])
def test_no_more_breakpoints_than_the_service_takes(count: int) -> None:
    body = encoded(SYSTEM, Message.of("user", *cached(count), "hi"), functions=(ADD,))
    assert len(marks(body)) == min(count + 3, MOST)
    assert ("cache_control" in body["messages"][0]["content"][-1]) == (count < MOST)
    top = encoded(
        SYSTEM, Message.of("user", *cached(count), "hi"), functions=(ADD,), extra_body={"cache_control": MARK}
    )
    assert len(marks(top)) == min(count + 4, max(MOST, count + 1))


@pytest.mark.parametrize(
    ("extra", "places"),
    [
        ({"cache_control": MARK}, {"", ".messages[0].content[0]", ".system[0]", ".tools[0]"}),
        ({"tools": [{"name": "f"}]}, {".messages[0].content[0]", ".system[0]"}),
        ({"tools": [{"cache_control": HOUR}] * 3}, {".messages[0].content[0]", *[f".tools[{n}]" for n in range(3)]}),
        (
            {"messages": [{"role": "user", "content": [{"cache_control": HOUR}] * 3}]},
            {".system[0]", *[f".messages[0].content[{n}]" for n in range(3)]},
        ),
        ({"metadata": {"user_id": "u"}, "system": "Be brief."}, {".messages[0].content[0]", ".tools[0]"}),
    ],
)
def test_an_extra_body_stays_as_it_is_and_its_breakpoints_count(extra: dict[str, Any], places: set[str]) -> None:
    body = encoded(SYSTEM, USER, functions=(ADD,), extra_body=extra)
    assert {key: body[key] for key in extra} == extra
    assert set(marks(body)) == places


def test_breakpoint_that_is_there_is_not_set_again() -> None:
    body = encoded(Message.of("user", "hi", *cached(1)), cache="1h")
    assert body["messages"][0]["content"][1]["cache_control"] == MARK
    assert len(marks(body)) == 1


def test_parts_of_a_dialog_stay_as_they_are() -> None:
    part = own(type="text", text="hi")
    before = copy.deepcopy(part.data)
    encoded(Message.of("system", part, own(type="text", text="x", z=1)), Message.of("user", part, Image.of(b"GIF89a")))
    assert part.data == before


def test_other_times_are_refused() -> None:
    with pytest.raises(UsageError, match=r"settings\.cache"):
        Settings(cache="24h")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'24h'"):
        Settings().override({"cache": "24h"})
