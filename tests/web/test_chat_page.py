"""Is the page served to its users alone, and does each bad request get a named error, with nothing lost?"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from served import Letter, desk, letters

from fsm_agent import Agent, Context, Function, Prompt, UsageError, function
from fsm_agent.flows import Flow, end, wait
from fsm_agent.store import MemoryStore, StoreError
from fsm_agent.testing import Script, function_call
from fsm_agent.web import serve

KEY = "sk-abcdefghijklmnopqrstuvwx"
HERE = "http://127.0.0.1:8000"


class Page:
    """A browser, without its JavaScript, in the loop of the application."""

    def __init__(self, app: Any, **headers: str) -> None:
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HERE, headers=headers, timeout=60)

    async def ask(self, thread: str, text: str = "", run: str = "r1", **more: Any) -> list[dict[str, Any]]:
        body = {"threadId": thread, "runId": run, "messages": [{"id": "1", "role": "user", "content": text}], **more}
        return events(await self.client.post("/agui", json=body))

    async def answer(self, thread: str, key: str, payload: Any, run: str = "r2") -> list[dict[str, Any]]:
        entry = {"interruptId": key, "status": "resolved", "payload": payload}
        return events(await self.client.post("/agui", json={"threadId": thread, "runId": run, "resume": [entry]}))

    async def shown(self, thread: str) -> list[dict[str, Any]]:
        return events(await self.client.get(f"/conversations/{thread}"))


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    lines = [line for line in response.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line[6:]) for line in lines]


def text(told: list[dict[str, Any]]) -> str:
    return "".join([data["delta"] for data in told if data["type"] == "TEXT_MESSAGE_CONTENT"])


@asynccontextmanager
async def visited(app: Any) -> AsyncIterator[Page]:
    """Yield a browser of the application, while it runs."""
    async with app.router.lifespan_context(app):
        yield Page(app)


async def test_a_conversation_is_shown_again_as_it_was(tmp_path: Path) -> None:
    async with visited(serve(desk(str(tmp_path / "runs.db")))) as page:
        assert text(await page.ask("c1", "hello")) == "Hello there"
        assert "It is so" in text(await page.ask("c1", "the weather?", run="r2"))
        shown = await page.shown("c1")
        assert [data["value"]["text"] for data in shown if data.get("name") == "said"] == ["hello", "the weather?"]
        assert text(shown).startswith("Hello thereIt is so")
        listed = (await page.client.get("/conversations")).json()
        assert [(one["name"], one["title"], one["asks"]) for one in listed] == [("c1", "hello", [])]
        assert listed[0]["at_s"] > 1e9, "a Unix time"


@pytest.mark.parametrize("is_run_by_client", [True, False])
async def test_functions_that_the_client_runs(is_run_by_client: bool) -> None:
    @function
    def read() -> str:
        "Read."
        return "done here"

    def answer(request: Any) -> Any:
        results = [part.text for message in request.messages if message.role == "tool" for part in message.parts]
        return "; ".join(results) or [function_call("paint", color="red"), function_call("read")]

    paint = Function(name="paint", parameters={"type": "object", "properties": {"color": {"type": "string"}}})
    tools: dict[str, Any] = {
        "tools": [{"name": "paint", "description": "Paint.", "parameters": {}}] if is_run_by_client else []
    }

    async with visited(serve(Agent(Script(*[answer] * 4), name="desk", functions=[paint, read]))) as page:
        told = await page.ask("c1", "paint", **tools)
        calls = [data["toolCallId"] for data in told if data["type"] == "TOOL_CALL_START"]
        assert told[-1]["outcome"]["type"] == ("success" if is_run_by_client else "interrupt")
        results = [
            {"id": "2", "role": "tool", "toolCallId": calls[0], "content": "painted"},
            {"id": "3", "role": "tool", "toolCallId": calls[1], "content": "not the client's to say"},
        ]
        told = await page.ask("c1", run="r2", messages=results, **tools)
        assert text(told) == "painted; done here"
        again = await page.ask("c1", run="r3", messages=results, **tools)
        assert again[-1]["type"] == "RUN_ERROR"
        later = [*results, {"id": "4", "role": "user", "content": "And now?"}]
        assert text(await page.ask("c1", run="r4", messages=later, **tools)) == "painted; done here"


async def test_a_client_that_runs_only_one_of_the_functions_is_asked_for_the_others() -> None:
    names = ("paint", "erase")

    asked = [function_call(name) for name in names]
    functions = [Function(name=name, parameters={}) for name in names]
    async with visited(serve(Agent(Script(asked), name="desk", functions=functions))) as page:
        told = await page.ask("c1", "go", tools=[{"name": "paint", "description": "Paint."}])
        assert told[-1]["outcome"]["type"] == "interrupt"
        assert len(told[-1]["outcome"]["interrupts"]) == 2


async def test_a_function_of_the_client_is_one_of_the_agents_and_may_fail() -> None:
    def answer(request: Any) -> Any:
        last = request.messages[-1]
        return f"{last.parts[0].text} {last.parts[0].is_error}" if last.role == "tool" else function_call("paint")

    paint = {"name": "paint", "description": "Paint."}

    agent = Agent(Script(*[answer] * 2), name="desk", functions=[Function(name="paint", parameters={})])
    async with visited(serve(agent)) as page:
        told = await page.ask("c1", "go", tools=[paint, {**paint, "name": "erase"}])
        assert (told[-1]["code"], "erase" in told[-1]["message"]) == ("unknown_tool", True)
        await page.ask("c1", "go", tools=[paint])
        failed = {"id": "2", "role": "tool", "toolCallId": "1.0", "content": "", "error": "no paint is left"}
        assert text(await page.ask("c1", run="r2", messages=[failed], tools=[paint])).endswith("no paint is left True")


PAINT = Function(name="paint", parameters={})


@pytest.mark.parametrize(
    "options",
    [
        {"prompt": Prompt("{{ task }}", path="shop/paint", functions=[PAINT])},
        {"functions": [Agent(Script(function_call("paint"), "painted"), name="painter", functions=[PAINT])]},
    ],
)
async def test_a_function_of_the_client_may_belong_to_a_prompt_or_an_inner_agent(options: dict[str, Any]) -> None:
    name = "paint" if "prompt" in options else "painter"
    tools: dict[str, Any] = {"tools": [{"name": "paint", "description": "Paint."}]}

    asked = function_call(name, **({} if name == "paint" else {"task": "Paint it."}))
    async with visited(serve(Agent(Script(asked, "Done."), name="desk", **options))) as page:
        told = await page.ask("c1", "go", **tools)
        assert told[-1]["outcome"]["type"] == "success"
        (id,) = [data["toolCallId"] for data in told if data.get("toolCallName") == "paint"]
        result = {"id": "2", "role": "tool", "toolCallId": id, "content": "red"}
        assert "Done." in text(await page.ask("c1", run="r2", messages=[result], **tools))


async def test_functions_and_the_system_prompt_know_who_asks(tmp_path: Path) -> None:
    @dataclass
    class Customer:
        name: str

    @function(needs_approval=True)
    def orders(context: Context[Customer]) -> str:
        "List the orders."
        return f"the orders of {context.deps.name}"

    def answer(request: Any) -> Any:
        last = request.messages[-1]
        return f"{request.messages[0].text} {last.text}" if last.role == "tool" else function_call("orders")

    def made() -> Any:
        agent = Agent(
            Script(*[answer] * 20),
            functions=[orders],
            name="desk",
            store=str(tmp_path / "runs.db"),
            system=lambda customer: f"You talk to {customer.name}.",
        )
        return serve(
            agent,
            user=lambda request: request.headers.get("x-user"),
            deps=lambda agent, extra, user: Customer(user),
        )

    async with visited(made()) as page:
        for who in ("ada", "bob"):
            page.client.headers["x-user"] = who
            await page.ask("c1", "What did I order?")
    async with visited(made()) as page:  # by another OS process, say
        for who in ("bob", "ada"):
            page.client.headers["x-user"] = who
            told = await page.answer("c1", "ask:2.0", {"approved": True})
            assert text(told) == f"You talk to {who}. the orders of {who}"


async def test_a_long_conversation_says_that_its_first_turns_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsm_agent.web.chat_page.MAX_TURNS", 2)

    async with visited(serve(desk())) as page:
        for n in range(2):
            await page.ask("c1", f"hello {n}", run=f"r{n}")
        assert (await page.shown("c1"))[0]["name"] == "said"
        await page.ask("c1", "hello 2", run="r2")
        shown = await page.shown("c1")
        assert (shown[0]["name"], shown[0]["value"]) == ("left_out", {"shown": 2})
        assert [data["value"]["text"] for data in shown if data.get("name") == "said"] == ["hello 1", "hello 2"]


async def test_approvals_with_edited_arguments(tmp_path: Path) -> None:
    async with visited(serve(desk(str(tmp_path / "runs.db")))) as page:
        end = (await page.ask("c1", "refund"))[-1]
        (asked,) = end["outcome"]["interrupts"]
        assert (await page.client.get("/conversations")).json()[0]["asks"] == ["ask:1.0"]
        edited = {"approved": True, "editedArgs": {"order": "A-17", "euros": 5}}
        told = await page.answer("c1", asked["id"], edited)
        assert "refunded 5 for A-17" in text(told)
        again = await page.answer("c1", asked["id"], edited)
        assert (again[-1]["type"], again[-1]["code"]) == ("RUN_ERROR", "NotAsked")
        assert (await page.shown("c1"))[-1]["outcome"] == {"type": "success"}


async def test_what_is_refused_does_not_start() -> None:
    async with visited(serve(desk())) as page:
        await page.ask("c1", "refund")
        for told in (
            await page.ask("c1", "hello", run="r2"),
            await page.answer("c1", "ask:9.9", {"approved": True}),
            await page.answer("c1", "ask:1.0", {"approved": True, "editedArgs": {"order": "A-17", "euros": "x"}}),
            await page.answer("nowhere", "ask:1.0", {"approved": True}),
        ):
            assert [data["type"] for data in told] == ["RUN_ERROR"]


async def test_what_was_taken_starts_although_it_fails_at_once() -> None:
    async with visited(serve(Agent(Script(), name="host"))) as page:
        assert [data["type"] for data in await page.ask("c1", "hello")] == ["RUN_STARTED", "RUN_ERROR"]
        assert [one["title"] for one in (await page.client.get("/conversations")).json()] == ["hello"]


async def test_an_answer_that_does_not_fit_is_told_without_names_of_runs(tmp_path: Path) -> None:
    async with visited(serve(desk(str(tmp_path / "runs.db")))) as page:
        await page.ask("c1", "refund")
        told = await page.answer("c1", "ask:1.0", {"approved": True, "editedArgs": {"order": "A-17", "euros": "x"}})
        assert (told[-1]["type"], told[-1]["code"]) == ("RUN_ERROR", "bad_answer")
        assert told[-1]["message"].startswith("euros: ")
        assert "ask:1.0" not in told[-1]["message"]
        assert "refunded 5 for A-17" in text(
            await page.answer("c1", "ask:1.0", {"approved": True, "editedArgs": {"order": "A-17", "euros": 5}})
        )


async def test_two_tabs_that_answer_one_question(tmp_path: Path) -> None:
    async with visited(serve(desk(str(tmp_path / "runs.db")))) as page:
        await page.ask("c1", "refund")
        tabs = [page.answer("c1", "ask:1.0", {"approved": n % 2 == 0}, run=f"t{n}") for n in range(6)]
        ends = [told[-1] for told in await asyncio.gather(*tabs)]
        assert [end["type"] for end in ends].count("RUN_FINISHED") == 1
        assert {end["code"] for end in ends if end["type"] == "RUN_ERROR"} <= {"NotAsked", "AlreadyAnswered"}


async def test_a_flow_has_a_run_for_each_conversation(tmp_path: Path) -> None:
    async with visited(serve(letters(str(tmp_path / "runs.db")), task=lambda message: Letter(message.text))) as page:
        (asked,) = (await page.ask("c1", "the delay"))[-1]["outcome"]["interrupts"]
        told = await page.answer("c1", asked["id"], "fine")
        assert told[-1]["result"] == {"about": "the delay", "text": "Dear reader", "verdict": "fine"}
        assert (await page.shown("c1"))[-1] == {**told[-1], "runId": "/c1"}
        assert [one["name"] for one in (await page.client.get("/conversations")).json()] == ["c1"]


async def test_the_data_of_a_flow_are_what_is_said(tmp_path: Path) -> None:
    async with visited(serve(letters(str(tmp_path / "runs.db")))) as page:
        assert (await page.ask("c1", "not JSON"))[-1]["code"] == "bad_data"
        assert (await page.ask("c1", '{"about": "the delay"}'))[-1]["outcome"]["type"] == "interrupt"


@pytest.mark.parametrize(("keys", "right"), [(["sk-a***", "y"], [KEY, "y"]), (["y"], ["y"])])
async def test_what_was_masked_and_comes_back_is_what_it_was(keys: list[str], right: list[str]) -> None:
    given: list[tuple[Any, str, list[str]]] = []

    @function(needs_approval=True)
    def log_in(user: str | dict[str, str], password: str, keys: list[str]) -> str:
        "Log in."
        given.append((user, password, keys))
        return "you are in"

    model = Script(function_call("log_in", user={"name": "ann"}, password="swordfish", keys=[KEY, "x"]), "You are in.")
    async with visited(serve(Agent(model, name="desk", functions=[log_in]))) as page:
        told = await page.ask("c1", "log in")
        assert "swordfish" not in json.dumps(told)
        assert KEY not in json.dumps(told)
        (asked,) = told[-1]["outcome"]["interrupts"]
        assert asked["metadata"]["about"]["arguments"] == {
            "user": {"name": "ann"}, "password": "***", "keys": ["sk-a***", "x"],
        }  # fmt: skip
        edited = {"user": "bob", "password": "***", "keys": keys}
        await page.answer("c1", asked["id"], {"approved": True, "editedArgs": edited})
    assert given == [("bob", "swordfish", right)]


class TestBadRequests:
    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            (b"{", 400, "bad_json"),
            (b"x" * 10_000_000, 413, "too_large"),
            (b'{"threadId": "c", "runId": "r", "by": "the boss", "messages": []}', 400, "claimed_user"),
            (b'{"threadId": "c", "runId": "r"}', 400, "no_message"),
        ],
        ids=["json", "10 MB", "claim", "empty"],
    )
    async def test_have_a_named_error(self, body: bytes, status: int, code: str) -> None:
        async with visited(serve(desk())) as page:
            answer = await page.client.post("/agui", content=body, headers={"content-type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (status, code)
            assert text(await page.ask("c1", "hello")) == "Hello there"

    async def test_of_unknown_conversations(self) -> None:
        async with visited(serve(desk())) as page:
            answer = await page.client.get("/conversations/nowhere")
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown_conversation")
            answer = await page.client.get(f"/conversations/{'x' * 201}")
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_name")
            assert (await page.answer("nowhere", "ask:1.0", {"approved": True}))[-1]["code"] == "NotAsked"
            answer = await page.client.post("/conversations/nowhere/cancel", json={})
            assert (answer.status_code, answer.json()["code"]) == (409, "NotAsked")

    async def test_another_message_while_a_question_is_open(self) -> None:
        async with visited(serve(desk())) as page:
            await page.ask("c1", "refund")
            assert (await page.ask("c1", "hello", run="r2"))[-1]["code"] == "Conflict"
            assert "denied" in str(await page.answer("c1", "ask:1.0", {"approved": False}))

    async def test_arguments_that_do_not_fit(self) -> None:
        async with visited(serve(desk())) as page:
            await page.ask("c1", "refund")
            told = await page.answer("c1", "ask:1.0", {"approved": True, "editedArgs": {"order": 7}})
            assert "refunded" not in text(told)
            assert (await page.answer("c1", "ask:1.0", "yes"))[-1]["type"] == "RUN_ERROR"


class TestGuard:
    async def test_nothing_of_another_site_is_done(self) -> None:
        async with visited(serve(desk())) as page:
            body = {"threadId": "c", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "hello"}]}
            for headers, status in (
                ({"host": "evil.example"}, 421),
                ({"origin": "https://evil.example"}, 403),
                ({"sec-fetch-site": "cross-site"}, 403),
                ({"content-type": "text/plain"}, 403),
            ):
                answer = await page.client.post(
                    "/agui", content=json.dumps(body), headers={"content-type": "application/json", **headers}
                )
                assert answer.status_code == status, headers
            answer = await page.client.get("/", headers={"host": "evil.example:8000"})
            assert answer.status_code == 421
            assert (await page.client.get("/conversations")).json() == []

    async def test_the_page_loads_nothing_from_elsewhere(self) -> None:
        async with visited(serve(desk())) as page:
            answer = await page.client.get("/")
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            parts = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', answer.text)
            assert {"static/chat.js", "static/vendor/marked.js", "static/vendor/purify.js"} < {*parts}
            for path in parts:
                assert (await page.client.get(f"/{path}")).status_code == 200, path
            own = [(await page.client.get(f"/static/chat.{kind}")).text for kind in ("js", "css")]
            assert not any("//" in re.sub(r"(?m)//.*$|(?<=:)//$", "", text) or "innerHTML" in text for text in own)

    async def test_the_name_of_an_agent_is_no_html(self) -> None:
        async with visited(serve(Agent(Script(), name="<b>bold"))) as page:
            assert "<b>" not in (await page.client.get("/")).text


@pytest.mark.parametrize(
    ("payload", "right"),
    [
        ({"about": "a", "text": "b"}, True),
        (["Letter", {"about": "a", "text": "b"}], False),
        ({"about": 1}, False),
        ({"text": "b"}, False),
        (["a"], False),
    ],
)
async def test_a_flow_is_answered_with_an_object(payload: Any, right: bool) -> None:
    @wait(Letter)
    def asking(letter: Letter) -> str:
        return "Which?"

    rows = [asking.done(end("done"), do=lambda letter, answer: answer)]
    flow = Flow("answered", Letter, start=asking, rows=rows, store=MemoryStore())

    async with visited(serve(flow, task=lambda message: Letter(message.text))) as page:
        (asked,) = (await page.ask("c1", "x"))[-1]["outcome"]["interrupts"]
        told = (await page.answer("c1", asked["id"], payload))[-1]
        if right:
            assert told["result"] == {**payload, "verdict": ""}
        else:
            assert told["type"] == "RUN_ERROR"
            assert (await page.shown("c1"))[-1]["outcome"]["interrupts"] == [asked], "it still asks"


@dataclass(frozen=True)
class Judgement:
    approved: bool
    reason: str = ""


@pytest.mark.parametrize("payload", [{"approved": True}, {"approved": False, "reason": "no"}])
async def test_an_object_that_looks_like_an_approval_answers_a_flow(payload: dict[str, Any]) -> None:
    @wait(Judgement)
    def asking(letter: Letter) -> str:
        return "Is it right?"

    rows = [asking.done(end("done"), do=lambda letter, answer: replace(letter, verdict=repr(answer)))]
    flow = Flow("judged", Letter, start=asking, rows=rows, store=MemoryStore())

    async with visited(serve(flow, task=lambda message: Letter(message.text))) as page:
        (asked,) = (await page.ask("c1", "x"))[-1]["outcome"]["interrupts"]
        told = (await page.answer("c1", asked["id"], payload))[-1]
        assert told["result"]["verdict"] == repr(Judgement(**payload))


@pytest.mark.parametrize("name", ["a/b", "a/cancel", "a%2Fb"])
async def test_names_with_slashes_are_conversations(name: str, tmp_path: Path) -> None:
    async with visited(serve(desk(str(tmp_path / "runs.db")))) as page:
        path = f"/conversations/{quote(name, safe='')}"
        assert (await page.ask(name, "refund"))[-1]["outcome"]["type"] == "interrupt"
        assert events(await page.client.get(path))[0]["value"]["text"] == "refund"
        assert (await page.client.post(f"{path}/cancel", json={})).status_code == 200


async def test_the_names_of_two_turns_are_two_however_they_are_spelled() -> None:
    async with visited(serve(desk())) as page:
        for name in ("b:c", "b%3Ac"):
            assert text(await page.ask("a", "hello", run=name)) == "Hello there"
        assert [data["name"] for data in await page.shown("a") if data["type"] == "CUSTOM"] == ["said", "said"]


async def test_colons_in_names_join_no_two_conversations(tmp_path: Path) -> None:
    async with visited(serve(desk(str(tmp_path / "runs.db")))) as page:
        assert text(await page.ask("a", "hello", run="b:c")) == "Hello there"
        assert text(await page.ask("a:b", "hello", run="c")) == "Hello there"
        listed = [one["name"] for one in (await page.client.get("/conversations")).json()]
        assert sorted(listed) == ["a", "a:b"]
        for name in listed:
            assert (await page.shown(name))[0]["value"]["text"] == "hello"


@pytest.mark.parametrize("way", ["GET /conversations", "GET /conversations/c1", "POST /conversations/c1/cancel"])
@pytest.mark.parametrize("is_of_store", [False, True])
async def test_an_error_of_the_service_is_for_its_server_alone(way: str, is_of_store: bool) -> None:
    problem = StoreError("/home/ann/runs.db is away") if is_of_store else UsageError("/home/ann/users is away")

    class Away(MemoryStore):
        def head(self, conversation: str) -> Any:
            raise problem

        def list(self, **options: Any) -> Any:
            raise problem

    def who(request: Any) -> str:
        if is_of_store:
            return "ann"
        raise problem

    app = serve(desk(Away()), user=who)

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
        answer = await client.request(*way.split(), json={})
    assert answer.status_code == 500
    assert "/home/ann" not in answer.text


class TestUsers:
    async def test_each_has_conversations_of_its_own_and_is_who_answers(self, tmp_path: Path) -> None:
        async def who(request: Any) -> str | None:
            found: str | None = request.headers.get("x-user")
            return found

        agent = desk(str(tmp_path / "runs.db"))
        app = serve(agent, user=who)

        async with visited(app) as nobody:
            assert (await nobody.client.get("/")).status_code == 401
            assert (await nobody.client.post("/agui", json={})).status_code == 401
            assert (await Page(app, **{"x-user": ""}).client.get("/")).status_code == 401
            ann, bob, slash = (Page(app, **{"x-user": name}) for name in ("ann", "bob", "ann/c1"))
            assert (await ann.ask("c1", "refund"))[-1]["outcome"]["type"] == "interrupt"
            for other in (bob, slash):
                assert (await other.client.get("/conversations")).json() == []
                assert (await other.client.get("/conversations/c1")).status_code == 404
                assert (await other.answer("c1", "ask:1.0", {"approved": True}))[-1]["code"] == "NotAsked"
                assert (await other.client.post("/conversations/c1/cancel", json={})).status_code == 409
            assert "refunded" in text(await ann.answer("c1", "ask:1.0", {"approved": True}))
            await Page(app, **{"x-user": "ann/b"}).ask("c", "refund")
            assert (await ann.answer("b/c", "ask:1.0", {"approved": True}))[-1]["code"] == "NotAsked"
            lines = [*agent.runs.all.export("ann/c1:r1")]
            assert [json.loads(line)["by"] for line in lines if '"approved"' in line] == ["ann"]
            await ann.ask("c2", "refund")
            assert (await ann.client.post("/conversations/c2/cancel", json={})).status_code == 200
            assert (await ann.shown("c2"))[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
            lines = [*agent.runs.all.export("ann/c2:r1")]
            assert [json.loads(line)["by"] for line in lines if '"cancelled"' in line] == ["ann"]

    async def test_one_cannot_take_the_whole_service(self) -> None:
        under_way, free = asyncio.Semaphore(0), asyncio.Event()

        class Waiting(Script):
            async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
                if "wait" in request.messages[-1].text:
                    under_way.release()
                    await free.wait()
                async for piece in super().astream(request, timeout_s=timeout_s):
                    yield piece

        agent = Agent(Waiting(*["Done."] * 9), name="desk", store=MemoryStore())
        app = serve(agent, user=lambda request: request.headers.get("x-user"), at_once=2)

        async with visited(app):
            ann, bob = (Page(app, **{"x-user": name}) for name in ("ann", "bob"))
            asked = [asyncio.ensure_future(ann.ask(f"c{n}", "wait")) for n in range(2)]
            said = {"role": "user", "id": "m", "content": "hello"}
            body = {"threadId": "c3", "runId": "r", "messages": [said]}
            for _ in asked:
                await under_way.acquire()
            refused = await ann.client.post("/agui", json=body)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many")
            again = asyncio.ensure_future(ann.ask("c1", "wait"))  # of a run that is under way: its stream
            assert (await ann.client.post("/agui", json=body)).status_code == 429
            assert text(await bob.ask("c1", "hello")) == "Done."
            free.set()
            assert [text(told) for told in await asyncio.gather(*asked, again)] == ["Done."] * 3
            assert text(await ann.ask("c9", "hello")) == "Done."

    async def test_a_run_that_waits_for_its_user_takes_nothing(self) -> None:
        app = serve(desk(MemoryStore()), at_once=1)

        async with visited(app) as page:
            for name in ("c1", "c2"):
                assert (await page.ask(name, "refund"))[-1]["outcome"]["type"] == "interrupt"
            assert text(await page.ask("c3", "hello"))

    @pytest.mark.parametrize("of", [desk, letters])
    async def test_one_finds_conversations_behind_more_of_others_than_a_page_looks_at(
        self, of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fsm_agent.store.listing.LOOKED", 3)

        async def who(request: Any) -> str | None:
            found: str | None = request.headers.get("x-user")
            return found

        runnable = of(str(tmp_path / "runs.db"))
        app = serve(runnable, user=who, **({} if of is desk else {"task": lambda message: Letter(message.text)}))

        async with visited(app):
            ann, bob = (Page(app, **{"x-user": name}) for name in ("ann", "bob"))
            await ann.ask("c1", "hello")
            for n in range(8):
                await bob.ask(f"c{n}", "hello")
            assert [one["name"] for one in (await ann.client.get("/conversations")).json()] == ["c1"]
            assert (await ann.shown("c1"))[0]["value"]["text"]
            assert len((await bob.client.get("/conversations")).json()) == 8
