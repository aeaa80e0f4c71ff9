"""Is each event JSON data as the published schema says, without secrets, and each result as well?"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import TypeAdapter
from support.paths import ROOT

from fsm_agent import (
    Agent,
    Approved,
    CallFailed,
    CallResult,
    CallSuspended,
    Limits,
    MemoryStore,
    function,
    messages,
)
from fsm_agent.flows import Flow, FlowResult, FlowSuspended, end, wait
from fsm_agent.flows import ask as asking
from fsm_agent.messages import Event, Message, Question, Reply, Usage, event_data, event_envelope, event_schema
from fsm_agent.testing import Pieces, Script, function_call

PUBLISHED = ROOT / "docs" / "events-1.schema.json"
SCHEMA = event_schema()
IS_EVENT = Draft202012Validator(SCHEMA)
IS_ENVELOPE = Draft202012Validator({**SCHEMA, "$ref": "#/$defs/envelope"})
KEY = "sk-abcdefghijklmnopqrstuvwx"
SECRET = {"password": "swordfish"}


def check(event: Event) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(json.dumps(event_data(event)))
    IS_EVENT.validate(told)
    name = "cut" if "cut" in told else told["type"]
    Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{name}"}).validate(told)
    assert {*told} <= {*SCHEMA["$defs"][name]["properties"]}, "the schema knows each field"
    IS_ENVELOPE.validate(event_envelope(event, run="r", steps=3))
    return told


@function
def add(a: int, b: int) -> int:
    "Add."
    return a + b


@function(needs_approval=True)
def log_in(user: str, password: str) -> str:
    "Log in."
    return f"the key is {KEY}"


def test_the_published_schema_is_what_the_function_returns() -> None:
    """``python -c`` of this line writes it: json.dumps(event_schema(), indent=2)."""
    assert json.loads(PUBLISHED.read_text("utf-8")) == SCHEMA
    Draft202012Validator.check_schema(SCHEMA)


def kinds() -> list[Any]:
    found = [kind for each in get_args(Event) for kind in (get_args(each) or [each])]
    return [getattr(kind, "__origin__", kind) for kind in found]


@pytest.mark.parametrize(
    "kind", [kind for kind in kinds() if kind is not messages.Done], ids=lambda kind: kind.__name__
)
def test_each_kind_is_valid(kind: Any) -> None:
    by_type: dict[str, Any] = {"int": 1, "float": 0.5, "bool": True, "str": "x", "tuple[int, int]": (1, 2), "Any": [1]}
    by_name = {"usage": Usage(input_tokens=1), "reply": Reply(message=Message.of("assistant", "Hi.")), "passes": ("a",)}
    by_name |= {"event": messages.TextDelta("x"), "keys": ("ask:1.0",), "questions": (Question("ask:1.0", "approval"),)}
    annotations = kind.__annotations__
    fields = {name: by_name.get(name, by_type.get(annotations[name])) for name in kind.__struct_fields__}
    fields = {name: value for name, value in fields.items() if value is not None}
    assert check(kind(**fields))["type"] in SCHEMA["$defs"]


class TestCalls:
    def heard(self, agent: Agent[Any, Any], task: str, **options: Any) -> list[dict[str, Any]]:
        found: list[Event] = []
        with suppress(CallFailed, CallSuspended):
            agent.run(agent.prepare(task, **options), found.append)
        return [check(event) for event in found]

    def test_with_functions_and_typed_output(self) -> None:
        model = Script(function_call("add", a=1, b=2), Pieces('{"n": ', "3}"))
        told = self.heard(Agent(model, functions=[add], output=dict[str, int]), "1 + 2?")
        assert (told[-1]["type"], told[-1]["output"], told[-1]["state"]) == ("result", {"n": 3}, "Completed")
        assert {"function_started", "function_ended", "partial_output", "history_changed"} <= {
            line["type"] for line in told
        }

    def test_that_fail(self) -> None:
        told = self.heard(Agent(Script("x", "y"), output=int, limits=Limits(parse_retries=0)), "?")
        assert (told[-1]["type"], told[-1]["failed"], told[-1]["reason"]) == ("failure", True, "unparseable")

    def test_that_wait_tell_what_is_asked_without_secrets(self) -> None:
        told = self.heard(Agent(Script(function_call("log_in", user="ann", **SECRET)), functions=[log_in]), "?")
        (asked,) = told[-1]["questions"]
        assert (told[-1]["type"], told[-1]["waits_for"], asked["kind"]) == ("suspended", ["ask:1.0"], "approval")
        assert asked["about"]["arguments"] == {"user": "ann", "password": "***"}
        assert asked["schema"]["required"] == ["user", "password"]
        assert "swordfish" not in json.dumps(told)

    def test_inside_have_their_path(self) -> None:
        inner = Agent(Script("Guten Tag"), name="translator")
        told = self.heard(Agent(Script(function_call("translator", task="Hi"), "Done."), functions=[inner]), "?")
        inside = [line["text"] for line in told if line["type"] == "text_delta" and line.get("path") == "run:1.0"]
        assert "".join(inside) == "Guten Tag"

    def test_of_a_result_only_the_output_is_as_it_is(self) -> None:
        said = f"{KEY} {'x' * 10_000}"
        agent = Agent(
            Script(function_call("log_in", user="ann", **SECRET), said), functions=[log_in], approve=lambda call: True
        )
        told = agent.call("?").to_dict()
        assert (told["output"], told["text"]) == (said, said)
        (made,) = told["function_calls"]
        assert (made["arguments"]["password"], KEY in str(made["result"])) == ("***", False)


def test_arguments_are_masked_though_they_are_not_whole_yet() -> None:
    piece = messages.ArgumentsDelta(0, '{"password": "swordfish')
    told = check(messages.Inside("run:1.0", messages.Inside("ask:2", piece)))
    assert (told["path"], told["arguments_json"]) == ("run:1.0/ask:2", '{"password": "***"')
    told = check(
        messages.ReplyCompleted(Reply(message=Message.of("assistant", function_call("f", api_key="swordfish"))))
    )
    assert told["function_calls"] == [{"name": "f", "arguments_json": '{"api_key": "***"}'}]


def test_an_event_is_bounded() -> None:
    told = check(messages.FunctionProgress("1.0", "f", [["x" * 10_000] * 100]))
    assert (told["type"], "characters" in told["cut"], len(json.dumps(told)) < 200_000) == (
        "function_progress",
        True,
        True,
    )


def test_what_json_cannot_hold_is_shown() -> None:
    told = check(messages.FunctionProgress("1.0", "f", {"n": float("nan"), "o": object(), 3: {1, 2}}))
    assert told["data"]["n"] is None


@dataclass(frozen=True)
class Letter:
    about: str
    text: str = ""


def letters() -> Flow[Letter]:
    writer = Agent(Script("Dear Ada"), name="writer")

    @asking(writer, str)
    def draft(data: Letter) -> str:
        return data.about

    @wait(str)
    def review(data: Letter) -> str:
        return data.text

    def with_text(data: Letter, text: str) -> Letter:
        return replace(data, text=text)

    rows = [draft.done(review, do=with_text), review.done(end("sent"))]
    return Flow("letters", Letter, start=draft, rows=rows, store=MemoryStore())


class TestFlows:
    def test_their_events_and_results(self) -> None:
        flow, found = letters(), list[Event]()
        with pytest.raises(FlowSuspended):
            flow.run(flow.prepare(Letter("the delay"), run_id="l"), found.append)
        told = [check(event) for event in found]
        assert (told[-1]["questions"][0]["kind"], told[-1]["questions"][0]["about"]) == (
            "answer",
            {"question": "Dear Ada", "types": ["str"]},
        )
        *_, last = [check(event) for event in flow.runs.stream("l", "fine")]
        assert (last["type"], last["state"], last["data"]) == (
            "result",
            "sent",
            {"about": "the delay", "text": "Dear Ada"},
        )
        assert last == {"type": "result", **flow.runs.resume("l").to_dict()}


class TestResumedStreams:
    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_call_goes_on_under_both_drivers(self, is_async: bool) -> None:
        model = Script(function_call("log_in", user="ann", **SECRET), "In.")
        agent = Agent(model, functions=[log_in], name="desk", store=MemoryStore())
        with pytest.raises(CallSuspended):
            agent.call("?", run_id="r")

        async def every() -> list[Event]:
            return [event async for event in agent.runs.astream("r", Approved(), by="ann")]

        found = asyncio.run(every()) if is_async else [*agent.runs.stream("r", {"ask:1.0": Approved()})]
        ends = [type(event).__name__ for event in found if isinstance(event, messages.FunctionEnded | messages.Done)]
        assert ends == ["FunctionEnded", "Done"]
        assert agent.runs.resume("r").output == "In."


def test_pydantic_writes_results_and_describes_them() -> None:
    result = Agent(Script("42"), output=int).call("?")
    adapter = TypeAdapter(CallResult[int])
    assert adapter.dump_python(result, mode="json") == result.to_dict()
    described = adapter.json_schema(mode="serialization")
    Draft202012Validator(described).validate(result.to_dict())
    assert "function_calls" in described["properties"]
    assert "data" in TypeAdapter(FlowResult[Letter]).json_schema(mode="serialization")["properties"]


def test_fastapi_returns_results_as_they_are() -> None:
    fastapi: Any = pytest.importorskip("fastapi", reason="FastAPI is not installed")
    client_of: Any = pytest.importorskip("starlette.testclient").TestClient

    app: Any = fastapi.FastAPI()
    agent, flow = Agent(Script("Hi.", "Hi.", "Hi.")), letters()

    async def ask(task: str) -> CallResult[str]:
        return await agent.acall(task)

    async def asked_for(task: str) -> Any:
        return await agent.acall(task)

    def plain(task: str) -> Any:
        return agent.call(task).to_dict()

    def letter(about: str) -> FlowResult[Letter]:
        with pytest.raises(FlowSuspended):
            flow.call(Letter(about), run_id=about)
        return flow.runs.resume(about, "fine")

    app.post("/ask")(ask)
    app.post("/asked", response_model=CallResult[str])(asked_for)
    app.post("/plain")(plain)
    app.post("/letter")(letter)
    client = client_of(app)
    asked = client.post("/ask?task=Hello").json()
    assert (asked["output"], asked["state"]) == ("Hi.", "Completed")
    assert client.post("/asked?task=Hello").json() == client.post("/plain?task=Hello").json() == asked
    assert client.post("/letter?about=x").json()["data"] == {"about": "x", "text": "Dear Ada"}
    paths = client.get("/openapi.json").json()["paths"]
    described = {path: json.dumps(paths[path]["post"]["responses"]["200"]) for path in ("/ask", "/asked", "/letter")}
    assert "function_calls" in described["/ask"]
    assert "function_calls" in described["/asked"]
    assert '"data"' in described["/letter"]
