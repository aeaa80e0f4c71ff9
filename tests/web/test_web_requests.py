"""What front ends refuse: parts, answers, names and users that are not as they should be."""

from __future__ import annotations

import asyncio
import re
import threading
from base64 import b64encode
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import pytest
from served import desk, letters
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from fsm_agent import Agent, Function, MemoryStore, ProviderError, UsageError, function
from fsm_agent.call import Returned
from fsm_agent.flows import Flow, end, wait
from fsm_agent.messages import Suspended
from fsm_agent.store import AlreadyAnswered, NotAsked, Runs, RunUnknown
from fsm_agent.testing import Script, function_call
from fsm_agent.web import AgUi, AiSdk, BadRequest, RunFollower, inspector_app, serve
from fsm_agent.web.auth import OriginCheck

PICTURE = b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()


def ag_ui(*parts: Any) -> Any:
    return AgUi.read({"threadId": "t1", "runId": "r1", "messages": [{"role": "user", "content": [*parts]}]})


def ag_ui_answers(*payloads: Any, status: str = "resolved") -> Any:
    entries = [{"interruptId": "ask:1.0", "status": status, "payload": payload} for payload in payloads]
    return AgUi.read({"threadId": "t1", "runId": "r1", "messages": [], "resume": entries})


def ai_sdk(*parts: Any) -> Any:
    return AiSdk.read({"id": "c1", "messages": [{"role": "user", "id": "m1", "parts": [*parts]}]})


def ai_sdk_file(url: str) -> Any:
    return ai_sdk({"type": "file", "url": url})


def ai_sdk_answer(data: Any, *others: Any) -> Any:
    return ai_sdk({"type": "data-answer", "data": data}, *others)


YES = {"key": "ask:1.0", "approved": True}


@pytest.mark.parametrize(
    ("code", "at_fault", "read", "parts"),
    [
        ("bad_part", "image", ag_ui, [{"type": "audio", "source": {"type": "data", "value": "AAAA"}}]),
        *[
            ("bad_part", "image", ag_ui, [{"type": "image", "source": source}])
            for source in (
                {"type": "url", "value": "https://elsewhere.example/a.png"},
                {"type": "url", "mimeType": "image/png", "value": PICTURE},
                {"type": "data", "mimeType": "image/png", "value": "AAAA"},
            )
        ],
        ("bad_part", "image", ag_ui, [{"type": "binary", "mimeType": "image/png", "url": "https://elsewhere.example"}]),
        ("bad_part", "image", ai_sdk, [{"type": "source-url", "url": "https://elsewhere.example"}]),
        ("bad_part", "image", ai_sdk_file, ["https://elsewhere.example/a.png"]),
        ("bad_part", "image", ai_sdk_file, ["http://127.0.0.1/x.png"]),
        ("bad_part", "image", ai_sdk_file, ["file:///etc/passwd"]),
        ("bad_part", "image", ai_sdk_file, ["/etc/passwd"]),
        ("bad_part", "image", ai_sdk_file, ["data:image/png;base64,AAAA"]),
        ("bad_part", "image", ai_sdk_file, ["data:x"]),
        *[("bad_body", "data-answer", ai_sdk_answer, [data]) for data in ("yes", {}, {"approved": True}, {"key": ""})],
        ("bad_answer", "messages", ai_sdk_answer, [YES, {"type": "text", "text": "And why?"}]),
        ("bad_answer", "messages", ai_sdk_answer, [YES, {"type": "file", "url": "data:image/png;base64,"}]),
        ("bad_answer", "interruptId", ag_ui_answers, [{"approved": True}, {"approved": False}]),
        *[
            ("bad_body", "status", partial(ag_ui_answers, status=status), [{"approved": True}])
            for status in ("canceled", "denied", "")
        ],
        *[
            ("bad_answer", "edited arguments", ag_ui_answers, [{"approved": True, "editedArgs": arguments}])
            for arguments in ("{}", [], 5, True)
        ],
    ],
)
def test_what_cannot_be_read_is_named(code: str, at_fault: str, read: Any, parts: Any) -> None:
    """No picture is read from elsewhere, and an answer names its question once and stands alone."""
    with pytest.raises(BadRequest, match=at_fault) as refused:
        read(*parts)
    assert refused.value.code == code


def test_blanks_may_stand_beside_an_answer() -> None:
    assert ai_sdk_answer(YES, {"type": "text", "text": " "}).answers


@pytest.mark.parametrize(
    "earlier",
    [
        {"id": "a1", "role": "activity", "activityType": "PLAN", "content": {"steps": [1]}},
        {"id": "a1", "role": "tool", "toolCallId": "c1", "content": [{"result": 1}], "parts": None},
        {
            "id": "a1",
            "role": "assistant",
            "content": None,
            "parts": [{"type": "data-answer", "data": 5}, {"text": None}],
        },
    ],
)
def test_earlier_messages_may_be_of_any_kind(earlier: Any) -> None:
    said = {"id": "m1", "role": "user", "content": "Hi", "parts": [{"type": "text", "text": "Hi"}]}
    for asked in (
        AgUi.read({"threadId": "t1", "runId": "r1", "messages": [earlier, said]}),
        AiSdk.read({"id": "c1", "messages": [earlier, said]}),
    ):
        assert asked.message is not None
        assert asked.message.text == "Hi"


def test_a_picture_of_the_older_kind_is_read() -> None:
    found = ag_ui({"type": "binary", "mimeType": "image/png", "data": PICTURE, "filename": "a.png"}).message
    assert [part.media_type for part in found.parts] == ["image/png"]


async def test_a_client_that_generates_again_retries_a_failed_turn_and_gets_an_ended_one() -> None:
    said = {"role": "user", "id": "m1", "parts": [{"type": "text", "text": "Hi"}]}
    again = AiSdk.read({"id": "c1", "messages": [said], "trigger": "regenerate-message"})

    store, model = MemoryStore(), Script(ProviderError("no", status=400), "Hello.")
    async with RunFollower(Agent(model, name="host", store=store)) as live:
        ends = []
        for asked in (ai_sdk(*said["parts"]), ai_sdk(*said["parts"]), again, again):
            run, after = await live.take(asked)
            ends.append([event async for _, event in live.follow(run, after=after)][-1].result.dialog[-1].text)
    assert ends == ["Hi", "Hi", "Hello.", "Hello."]


@pytest.mark.parametrize("after", ["3", -1, True, None, 1.5])
async def test_a_position_in_a_run_is_a_number_of_steps(after: Any) -> None:
    async with RunFollower(Agent(Script("Hi."), name="host")) as live:
        run = await live.begin("Hello", run_id="r1")
        with pytest.raises(UsageError, match="after"):
            await anext(live.follow(run, after=after))


async def test_a_flow_has_no_conversations_and_unknown_runs_cannot_be_cancelled() -> None:
    async with RunFollower(letters()) as live:
        with pytest.raises(RunUnknown):
            await live.cancel("nowhere")
        assert await live.newest("nowhere") is None
        with pytest.raises(UsageError, match="conversations"):
            await live.begin("Ada", conversation="c1")


@pytest.mark.parametrize(
    "made",
    [lambda: serve(desk()), lambda: serve(desk(), user=lambda _: "ann"), lambda: inspector_app(Runs(MemoryStore()))],
    ids=["chat", "chat behind a proxy", "inspector"],
)
def test_a_web_socket_is_closed(made: Any) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/", "query_string": b"", "headers": [(b"host", b"127.0.0.1:8000")]}
    asyncio.run(made()(scope, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_an_answer_cannot_weaken_the_headers() -> None:
    weak = PlainTextResponse("page", headers={"x-frame-options": "ALLOWALL", "content-security-policy": "*"})
    answer = TestClient(OriginCheck(weak), base_url="http://localhost").get("/")
    assert answer.text == "page"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@function(once=True)
async def withdraw(euros: int) -> str:
    "Pay out."
    ARRIVED.set()
    await asyncio.Event().wait()
    return "paid"


ARRIVED = threading.Event()
PROTOCOLS = {
    "AG-UI": lambda key, value: AgUi.read(
        {"threadId": "c", "runId": "r2", "resume": [{"interruptId": key, "status": "resolved", "payload": value}]}
    ),
    "AI SDK": lambda key, value: ai_sdk_answer({"key": key, "value": value})._replace(conversation="c"),
}


async def last_of(live: RunFollower, run: str) -> Any:
    return [event async for _, event in live.follow(run)][-1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_user_does_not_say_what_became_of_what_must_not_run_twice(protocol: str) -> None:
    """The words would be the result of the function.  An operator has to look for the outcome."""
    store, model = MemoryStore(), Script(function_call("withdraw", euros=5), "You have it.")
    agent = Agent(model, functions=[withdraw], name="bank", store=store)

    ARRIVED.clear()
    async with RunFollower(agent) as live:
        await live.begin("Take out 5.", run_id="r", conversation="c")
        await asyncio.to_thread(ARRIVED.wait, 30)
    async with RunFollower(agent) as live:
        asked = await last_of(live, "r")
        (key,) = [question.key for question in store.get("r").waits]
        assert (type(asked), key) == (Suspended, "reconcile:1.0")
        for value in ("paid 1,000,000", {"result": "paid"}, {"approved": True}, True, None):
            with pytest.raises(BadRequest, match=re.escape(key)) as refused:
                await live.take(PROTOCOLS[protocol](key, value), by="eve")
            assert refused.value.code == "for_operators"
        assert [question.key for question in store.get("r").waits] == [key]
        await live.answer("r", {key: Returned(text="paid 5")}, by="an operator")
        assert (await last_of(live, "r")).result.output == "You have it."


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("value", ["yes", True, None, {"approved": "yes"}, {"approve": True}])
async def test_an_approval_is_answered_with_yes_or_no(protocol: str, value: Any) -> None:
    """The client sent the wrong thing, so it is told so, and the server logs no error of its own."""

    def refund(order: str) -> str:
        "Refund an order."
        return "done"

    asks = Function.of(refund, needs_approval=True)
    agent = Agent(Script(function_call("refund", order="A-17")), functions=[asks], name="desk", store=MemoryStore())

    async with RunFollower(agent) as live:
        run = await live.begin("hi", conversation="c")
        await last_of(live, run)
        with pytest.raises(BadRequest, match=r"'ask:1\.0': expected approved to be true or false") as refused:
            await live.take(PROTOCOLS[protocol]("ask:1.0", value), by="ann")
        assert refused.value.code == "bad_answer"
        assert [question.key for question in live.runs.store.get(run).waits] == ["ask:1.0"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("value", "told"), [("rain", "rain"), ({"c": 11}, '{"c": 11}'), (3, "3"), ("", "")])
async def test_a_function_without_a_callable_gets_its_result_from_the_client(
    protocol: str, value: Any, told: str
) -> None:
    where = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    weather = Function(name="weather", description="Tell the weather.", parameters=where)
    model = Script(function_call("weather", city="Rome"), "It is so.")
    agent = Agent(model, functions=[weather], name="desk", store=MemoryStore())

    async with RunFollower(agent) as live:
        run = await live.begin("hi", conversation="c")
        assert isinstance(await last_of(live, run), Suspended)
        (key,) = [question.key for question in live.runs.store.get(run).waits]
        await live.take(PROTOCOLS[protocol](key, value), by="ann")
        result: str = (await last_of(live, run)).result.function_calls[0].result
        with pytest.raises((NotAsked, AlreadyAnswered), match=re.escape(run)):
            await live.take(PROTOCOLS[protocol](key, value), by="bob")
    assert result == told


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Pair(NamedTuple):
    one: int
    two: int


SIZES = (Size, "l", Size.LARGE)
DAYS = (date, "2026-11-30", date(2026, 11, 30))
AMOUNTS = (Decimal, "1.10", Decimal("1.10"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("kind", "value", "meant"), [SIZES, DAYS, AMOUNTS, (str, "5", "5"), (bool, False, False)])
async def test_a_flow_reads_a_value_by_the_type_of_its_question(
    protocol: str, kind: Any, value: Any, meant: object
) -> None:
    asking = wait(kind, name="asking")(lambda told: "Well?")
    rows = [asking.done(end("over"), do=lambda told, answer: repr(answer))]
    flow = Flow("f", str, start=asking, rows=rows, store=MemoryStore())

    async with RunFollower(flow) as live:
        run = await live.begin("hi", run_id="c")
        await last_of(live, run)
        await live.take(PROTOCOLS[protocol]("answer:asking#1", value), by="ann")
        assert (await last_of(live, run)).result.output == repr(meant)


async def test_a_form_of_a_flow_that_is_closed_is_no_answer() -> None:
    """The client is told so, and the server logs no error of its own."""
    asking = wait(str, name="asking")(lambda told: "Well?")
    flow = Flow("f", str, start=asking, rows=[asking.done(end("over"))], store=MemoryStore())
    closed = {"threadId": "c", "runId": "r2", "resume": [{"interruptId": "answer:asking#1", "status": "cancelled"}]}

    async with RunFollower(flow) as live:
        run = await live.begin("hi", run_id="c")
        await last_of(live, run)
        with pytest.raises(BadRequest, match="'answer:asking#1'") as refused:
            await live.take(AgUi.read(closed), by="ann")
        assert refused.value.code == "bad_answer"
        assert [question.key for question in live.runs.store.get(run).waits] == ["answer:asking#1"]


async def test_data_of_a_flow_that_does_not_fit_is_told_in_one_line() -> None:
    asking = wait(str, name="asking")(lambda numbers: "Well?")
    flow = Flow("f", Pair, start=asking, rows=[asking.done(end("over"))], store=MemoryStore())

    async with RunFollower(flow) as live:
        with pytest.raises(BadRequest, match=r"'f'.*\btwo: .*'2nd'") as refused:
            await live.take(ag_ui({"type": "text", "text": '{"one": 1, "two": "2nd"}'}), by="ann")
    assert "\n" not in str(refused.value)
