"""Do several requests make one reply, with its calls, its usage, its errors, and its end when it is cancelled?

A small server stands in for llama.cpp's server.  It prefers a question whose description has the same word.  The tests
of `TestRealModel` ask the embedded model.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from support.embedded import needs_model
from support.http_stub import HttpStubServer
from typing_extensions import TypedDict

from fsm_agent import Agent, CallFailed, Limits
from fsm_agent.call import Reason, Request
from fsm_agent.clients import HttpClient
from fsm_agent.clients.local.functions import extraction as reading
from fsm_agent.errors import BadReply, ProviderError, TimedOut
from fsm_agent.functions import Function
from fsm_agent.messages import (
    ArgumentsDelta,
    FunctionCall,
    FunctionCallStarted,
    FunctionResult,
    Message,
    Reply,
    Settings,
    TextDelta,
    Usage,
    UsageReported,
)
from fsm_agent.prompts import Output
from fsm_agent.providers import providers
from fsm_agent.runtime import run

GUIDED = providers()["llamacpp"].changed(profile=providers()["local"].profile_of("smollm2-135m"))
LIKELY, UNLIKELY = -1.0, -100.0


class LlamaServer(HttpStubServer):
    """Answers `/tokenize`, `/completions` and chats; ``at`` maps the number of a request to what happens before it.

    Attributes:
        paths: The paths of the requests, in order.
        bodies: Their bodies.
        chats: The bodies of the chats.
    """

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.chats: list[dict[str, Any]] = []
        self.at: dict[int, Callable[[], object]] = {}
        self.tokens: list[int] | None = [1, 2, 3]
        self.answer = "It is sunny."
        self.finish = "stop"
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                stub.paths.append(self.path)
                stub.bodies.append(body)
                refusal = stub.at.get(len(stub.paths), lambda: None)()
                if refusal is not None:
                    self.send(500, {"error": {"code": 500, "message": str(refusal), "type": "server_error"}})
                elif self.path == "/tokenize":
                    self.send(200, {"tokens": stub.tokens})
                elif self.path == "/v1/completions":
                    self.send(200, stub.completed(body))
                else:
                    stub.chats.append(body)
                    self.chat(body)

            def chat(self, body: dict[str, Any]) -> None:
                head = {"id": "c", "object": "chat.completion", "model": body["model"]}
                usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
                if not body.get("stream"):
                    message = {"role": "assistant", "content": stub.answer}
                    choices = [{"index": 0, "message": message, "finish_reason": stub.finish}]
                    self.send(200, {**head, "choices": choices, "usage": usage})
                    return
                pieces = [{"index": 0, "delta": {"content": word + " "}} for word in stub.answer.split()]
                ends = {"index": 0, "delta": {}, "finish_reason": "stop"}
                chunks = [{**head, "choices": [choice]} for choice in [*pieces, ends]]
                lines = [
                    f"data: {json.dumps(chunk)}\n\n" for chunk in [*chunks, {**head, "choices": [], "usage": usage}]
                ]
                self.write(200, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode())

            def send(self, status: int, document: dict[str, Any]) -> None:
                self.write(status, "application/json", json.dumps(document).encode())

            def write(self, status: int, kind: str, content: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                with contextlib.suppress(OSError):  # nobody listens any more
                    self.wfile.write(content)

        super().__init__(Handler)
        self.base_url = f"{self.root}/v1"

    def completed(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a completion: a likelihood if that is asked, otherwise a copied text or number."""
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        number = re.search(r'r\d+: "(\d+)"', body.get("grammar", ""))
        text = f" {number[1]}" if number else ' "Lisbon"'
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": "stop"}
        if body.get("logprobs"):
            logprob = LIKELY if "weather" in body["prompt"] else UNLIKELY
            choice["logprobs"] = {"content": [{"token": "x", "logprob": logprob, "top_logprobs": []}] * 3}
        return {"id": "t", "object": "text_completion", "choices": [choice], "usage": usage}


@pytest.fixture
def server() -> Iterator[LlamaServer]:
    with LlamaServer() as server:
        yield server


def client_of(server: LlamaServer) -> HttpClient:
    return HttpClient(GUIDED, "tiny", base_url=server.base_url)


def fetch_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"sunny in {city}"


def erase(path: str) -> str:
    """Delete a file."""
    return "gone"


FUNCTIONS = (Function.of(fetch_weather), Function.of(erase))
ASKED = Request(messages=[Message.of("user", "Is it nice in Lisbon?")], functions=FUNCTIONS)
CALL = FunctionCall(name="fetch_weather", arguments_json='{"city": "Lisbon"}', id="1.0")


def with_result(text: str, *, is_error: bool = False) -> Request:
    result = FunctionResult(id="1.0", name="fetch_weather", text=text, is_error=is_error)
    return ASKED.changed(messages=[*ASKED.messages, Message.of("assistant", CALL), Message.of("tool", result)])


class TestCalls:
    def test_a_call_is_an_ordinary_reply(self, server: LlamaServer):
        with client_of(server) as client:
            reply = client.complete(ASKED)
        (note,) = reply.adapted
        assert reply == Reply(
            message=Message.of("assistant", CALL.changed(id="")),
            usage=Usage(input_tokens=20, output_tokens=8),  # of all requests together
            finish="tool_calls",
            adapted=(note,),
        )
        assert note.startswith("'fetch_weather' was chosen and filled in")
        assert note.endswith("5)"), "the number of requests"

    def test_the_model_is_asked_for_what_it_likes_best(self, server: LlamaServer):
        with client_of(server) as client:
            client.complete(ASKED)
        split, *scored, filled = server.bodies
        assert split == {"content": "Is it nice in Lisbon?", "add_special": False, "parse_special": False}
        likeliest = {"model": "tiny", "temperature": 0, "cache_prompt": True}
        forced = {**likeliest, "max_tokens": 3, "logprobs": 1, "grammar": "root ::= <[1]> <[2]> <[3]>"}
        assert scored == [
            {**forced, "prompt": f"Function: {described}\nUser's request: "}
            for described in (
                "Do something.",
                "fetch weather: Return the weather in a city. (city)",
                "erase: Delete a file. (path)",
            )
        ]
        assert filled.pop("prompt").endswith(
            '- city (string): \nQuestion: Is it nice in Lisbon?<|im_end|>\n<|im_start|>assistant\n{"city":'
        )
        assert filled.pop("grammar").startswith("%llguidance {}\n")
        assert filled == {**likeliest, "max_tokens": 90}

    def test_all_four_methods_agree(self, server: LlamaServer):
        async def asynchronous() -> list[Any]:
            async with client_of(server) as client:
                return [await client.acomplete(ASKED), [item async for item in client.astream(ASKED)]]

        with client_of(server) as client:
            whole, streamed = client.complete(ASKED), [*client.stream(ASKED)]
        awaited, astreamed = asyncio.run(asynchronous())
        assert whole == awaited == streamed[-1] == astreamed[-1]
        assert streamed == astreamed
        assert streamed[0] == FunctionCallStarted(0, "fetch_weather")
        assert streamed[1] == ArgumentsDelta(0, '{"city": "Lisbon"}')
        assert streamed[-2] == UsageReported(whole.usage)

    def test_a_question_that_nothing_explains_is_asked_without_functions(self, server: LlamaServer):
        request = ASKED.changed(functions=FUNCTIONS[1:])
        with client_of(server) as client:
            items = [*client.stream(request)]
        assert "tools" not in server.chats[0]
        assert [item.text for item in items if isinstance(item, TextDelta)] == ["It ", "is ", "sunny. "]
        assert isinstance(items[-1], Reply)
        assert "none matches the question" in items[-1].adapted[0]
        assert items[-2] == UsageReported(items[-1].usage), "the only report, of all requests"
        assert sum(isinstance(item, UsageReported) for item in items) == 1
        assert items[-1].usage.input_tokens == 7 + 2 * 5

    @pytest.mark.parametrize("choice", ["required", "erase"])
    def test_a_function_that_must_be_called_is(self, server: LlamaServer, choice: str):
        request = ASKED.changed(functions=FUNCTIONS[1:], tool_choice=choice)
        with client_of(server) as client:
            assert [call.name for call in client.complete(request).message.function_calls] == ["erase"]

    def test_no_function_is_chosen_where_none_may_be(self, server: LlamaServer):
        with client_of(server) as client:
            assert client.complete(ASKED.changed(tool_choice="none")).message.text == "It is sunny."
        assert server.paths == ["/v1/chat/completions"]

    def test_it_is_switched_off_by_the_profile(self, server: LlamaServer):
        native = GUIDED.changed(profile=GUIDED.profile.changed(function_calls="native"))
        with HttpClient(native, "tiny", base_url=server.base_url) as client:
            reply = client.complete(ASKED)
        assert (len(server.chats[0]["tools"]), reply.adapted) == (2, ())

    def test_text_of_other_scripts_is_not_scored_but_read(self, server: LlamaServer):
        weather = Function(
            name="weather",
            description="查询一个城市的天气",
            parameters={"properties": {"city": {"type": "string"}}, "required": ["city"]},
        )
        request = Request(messages=[Message.of("user", "请告诉我上海的天气")], functions=(weather,))
        with client_of(server) as client:
            assert client.complete(request).message.function_calls
        assert server.paths == ["/v1/completions"], "the value alone"


class TestAnswers:
    def test_an_answer_with_the_result_is_the_models(self, server: LlamaServer):
        server.answer = 'It is "sunny."'  # small models quote what they are given
        asked = with_result("sunny")
        with client_of(server) as client:
            reply = client.complete(asked.changed(messages=[Message.of("system", "Be kind."), *asked.messages]))
        assert reply.message.text == "It is sunny."
        assert "the results of 'fetch_weather'" in reply.adapted[0]
        system, words = server.chats[0]["messages"]
        assert (system, words["role"]) == ({"role": "system", "content": "Be kind."}, "user")
        assert words["content"].startswith("Question: Is it nice in Lisbon?\nThe result is sunny. ")

    @pytest.mark.parametrize(
        ("result", "answer", "is_kept"),
        [
            ("1,200.5 EUR", "It costs 1,200.5 EUR.", False),
            ("1200.5 EUR", "It costs 1,200.5 EUR.", True),
            ("sunny", "It is rainy.", False),
            ("word " * 41, "A long story.", True),
            ("word " * 41, " ", False),
        ],
    )
    def test_an_answer_is_kept_if_it_holds_the_result(
        self, server: LlamaServer, result: str, answer: str, is_kept: bool
    ):
        server.answer = answer
        with client_of(server) as client:
            reply = client.complete(with_result(result))
        assert reply.message.text == (answer if is_kept else f"fetch_weather returned: {result.strip()}")

    def test_an_answer_without_the_result_gives_way_to_the_result(self, server: LlamaServer):
        with client_of(server) as client:
            items = [*client.stream(with_result("rain, 7 degrees"))]
        assert [item.text for item in items if isinstance(item, TextDelta)] == [
            "fetch_weather returned: rain, 7 degrees"
        ]
        assert isinstance(items[-1], Reply)
        assert "verbatim" in items[-1].adapted[0]

    def test_a_failure_is_told_as_it_is(self, server: LlamaServer):
        with client_of(server) as client:
            reply = client.complete(with_result("no such city", is_error=True))
        assert reply.message.text == "fetch_weather failed: no such city"
        assert server.paths == []

    def test_a_typed_answer_from_results_is_held_to_its_schema(self, server: LlamaServer):
        server.answer = "7"
        with client_of(server) as client:
            request = with_result("7 degrees").changed(output=Output(int))
            client.complete(request)
        assert "response_format" in server.chats[0]


class Order(BaseModel):
    """An order of goods."""

    customer: str
    quantity: int
    urgent: bool = False


class Basket(BaseModel):
    orders: list[Order]


def extraction(text: str, output: Any = Order, **changes: Any) -> Request:
    return Request(messages=[Message.of("user", text)], output=Output(output), **changes)


class TestTypedAnswers:
    def test_a_flat_object_is_copied_field_by_field(self, server: LlamaServer):
        with client_of(server) as client:
            reply = client.complete(extraction("Extract the order: Lisbon wants 12 lamps, urgent."))
        assert json.loads(reply.message.text) == {"customer": "Lisbon", "quantity": 12, "urgent": True}
        assert server.paths == ["/v1/completions"], "the flag and the number are read off by code"
        assert reply.adapted[0].startswith("the fields of 'Order' were copied from the task")

    def test_all_four_methods_agree(self, server: LlamaServer):
        request = extraction("Lisbon wants 12 lamps.")

        async def asynchronous() -> list[Any]:
            async with client_of(server) as client:
                return [await client.acomplete(request), [item async for item in client.astream(request)]]

        with client_of(server) as client:
            whole, streamed = client.complete(request), [*client.stream(request)]
        awaited, astreamed = asyncio.run(asynchronous())
        assert whole == awaited == streamed[-1] == astreamed[-1]
        assert streamed == astreamed
        assert streamed[0] == TextDelta(whole.message.text)

    def test_what_the_text_does_not_hold_is_null(self, server: LlamaServer):
        with client_of(server) as client:
            reply = client.complete(extraction("Lisbon wants lamps."))
        assert json.loads(reply.message.text)["quantity"] is None

    def test_an_agent_fails_by_name_where_the_text_lacks_a_value(self, server: LlamaServer):
        with (
            Agent(client_of(server), output=Order) as agent,
            pytest.raises(CallFailed, match="quantity"),
        ):
            agent.call("Lisbon wants lamps.")

    def test_no_field_is_copied_from_the_exception_branch(self, server: LlamaServer):
        branch = [Message.of("assistant", "{}"), Message.of("user", "Your answer has 99 problems in Oslo.")]
        request = extraction("Lisbon wants 12 lamps.")
        with client_of(server) as client:
            again = client.complete(request.changed(messages=[*request.messages, *branch], branch_length=2))
            assert json.loads(again.message.text) == {"customer": "Lisbon", "quantity": 12}

    @pytest.mark.parametrize(
        ("output", "changes", "limit"),
        [
            (Basket, {}, 256),
            (Order, {"mode": "native"}, 256),
            (Basket, {"settings": Settings(max_tokens=7)}, 7),
        ],
    )
    def test_any_other_typed_answer_has_an_end(
        self, server: LlamaServer, output: Any, changes: dict[str, Any], limit: int
    ):
        with client_of(server) as client:
            client.complete(extraction("Lisbon wants 12 lamps.", output, **changes))
        assert server.paths == ["/v1/chat/completions"]
        assert server.chats[0]["max_tokens"] == limit
        assert server.chats[0]["response_format"]["json_schema"]["name"]

    @pytest.mark.parametrize(("settings", "is_told"), [({}, True), ({"max_tokens": 7}, False)])
    def test_a_typed_answer_that_our_limit_cut_says_so(
        self, server: LlamaServer, settings: dict[str, Any], is_told: bool
    ):
        request = extraction("Lisbon wants 12 lamps.", Basket, settings=Settings(**settings))
        for finish in ("stop", "length"):
            server.finish = finish
            with client_of(server) as client:
                reply = client.complete(request)
            assert bool(reply.adapted) == (is_told and finish == "length")

    @pytest.mark.parametrize("functions", [(), FUNCTIONS[:1]])
    def test_a_text_that_is_read_in_part_says_so(self, server: LlamaServer, functions: tuple[Function, ...]):
        """What its rest holds is null, or not called with, as if the text did not hold it."""
        with client_of(server) as client:
            for length, notes in ((3_000, 0), (6_000, 1)):
                text = f"weather {'in Lisbon ' * (length // 10)} 12"
                reply = client.complete(extraction(text).changed(functions=functions))
                found = [note for note in reply.adapted if note.startswith("only the first 4,000 of ")]
                assert len(found) == notes, reply.adapted

    def test_text_has_no_limit_of_ours(self, server: LlamaServer):
        with client_of(server) as client:
            client.complete(Request(messages=[Message.of("user", "Tell me a story.")]))
        assert "max_tokens" not in server.chats[0]

    def test_functions_are_chosen_before_the_answer_is_copied(self, server: LlamaServer):
        with client_of(server) as client:
            called = client.complete(ASKED.changed(output=Output(Order)))
            answered = client.complete(
                extraction("Is it nice in Lisbon at 12?").changed(functions=FUNCTIONS[1:]),
            )
        assert called.message.function_calls
        assert json.loads(answered.message.text) == {"customer": "Lisbon", "quantity": 12}


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("Extract the order as JSON.\nText: Two lamps.", "Two lamps."),
        ("Extract the order.\nUse EUR.\nText:\nTwo lamps.\nNote: soon.", "Two lamps.\nNote: soon."),
        ("Please extract name, age and city: Ann, 7, Bern", "Ann, 7, Bern"),
        ("Read this mail.\n\nDear team,\ntwo lamps.", "Dear team,\ntwo lamps."),
        ("Who is this about? Ann is 7.", "Ann is 7."),
        ("Get the trip out of this: Bern to Rome", "Bern to Rome"),
        ("Find a flight from Bern to Rome.", "Find a flight from Bern to Rome."),
        ("Ann: 7 years.\nText: no", "Ann: 7 years.\nText: no"),
        ("Extract the order.", "Extract the order."),
        ("", ""),
    ],
)
def test_the_instruction_is_no_part_of_the_text(task: str, text: str):
    assert reading.source_text(task) == text


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (Order, True),
        (
            TypedDict("Row", {"name": "str | None", "tags": "list[str]", "kind": 'Literal["a", "b"]', "day": "date"}),
            True,
        ),
        (Basket, False),
        (TypedDict("Row", {"size": "int | str"}), False),
        (TypedDict("Row", {"inner": "Order"}), False),
        (TypedDict("Row", {"pair": "tuple[int, str]"}), False),
        (TypedDict("Row", {"any": "dict[str, int]"}), False),
    ],
)
def test_flat_objects_are_told_from_others(output: Any, expected: bool):
    assert reading.is_flat(Output(output).schema or {}) is expected


class TestEnds:
    def test_a_server_that_does_not_split_texts_is_at_fault(self, server: LlamaServer):
        server.tokens = None
        with client_of(server) as client, pytest.raises(BadReply, match="tokens"):
            client.complete(ASKED)

    @pytest.mark.parametrize("number", [1, 5])
    def test_a_request_that_fails_is_an_error_and_not_a_reply_without_calls(self, server: LlamaServer, number: int):
        server.at[number] = lambda: "out of order"
        with client_of(server) as client, pytest.raises(ProviderError, match="out of order") as caught:
            client.complete(ASKED)
        assert caught.value.status == 500
        assert len(server.paths) == number

    @pytest.mark.parametrize("number", [1, 3])
    def test_a_call_that_is_cancelled_ends_between_requests(self, server: LlamaServer, number: int):
        with Agent(client_of(server), functions=[fetch_weather, erase]) as agent:
            pending = agent.prepare("Is it nice in Lisbon?")
            held = threading.Event()
            server.at[number] = lambda: (pending.cancel("enough"), held.wait(10))[0]
            run(pending, agent._own_environment)
            held.set()
        assert pending.record.ending.reason is Reason.CANCELLED
        assert len(server.paths) == number

    @pytest.mark.parametrize("number", [1, 3])
    def test_a_task_is_cancelled_between_requests(self, server: LlamaServer, number: int):
        async def cancelled() -> None:
            async with client_of(server) as client:
                task = asyncio.create_task(client.acomplete(ASKED))
                loop = asyncio.get_running_loop()
                server.at[number] = lambda: loop.call_soon_threadsafe(task.cancel) and None
                with pytest.raises(asyncio.CancelledError):
                    await task

        asyncio.run(cancelled())
        assert len(server.paths) <= number + 1

    def test_one_timeout_bounds_all_requests(self, server: LlamaServer):
        held = threading.Event()
        server.at[3] = lambda: held.wait(10) and None
        with client_of(server) as client, pytest.raises(TimedOut, match=r"0\.1"):
            client.complete(ASKED, timeout_s=0.1)
        held.set()
        assert len(server.paths) <= 3

    def test_requests_that_are_each_in_time_may_be_late_together(self, server: LlamaServer):
        never = threading.Event()
        for number in range(1, 6):
            server.at[number] = lambda: never.wait(0.05) or None
        with client_of(server) as client, pytest.raises(TimedOut, match=r"0\.2"):
            client.complete(ASKED, timeout_s=0.2)

    def test_a_stream_may_be_left(self, server: LlamaServer):
        with client_of(server) as client:
            items = client.stream(ASKED)
            next(items)
            items.close()
            assert client.complete(ASKED).message.function_calls, "the client is as good as before"


@needs_model
@pytest.mark.nightly
class TestRealModel:
    def test_one_call_and_its_answer(self):
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        with Agent("local:", functions=[add], settings=Settings(temperature=0, seed=1, max_tokens=64)) as agent:
            result = agent.call("What is 17 + 25?")
        assert [(call.name, call.arguments) for call in result.function_calls] == [("add", {"a": 17, "b": 25})]
        assert "42" in result.output

    @pytest.mark.parametrize("city", ["Zürich", "北京", "Москва", "القاهرة", "São Paulo", "🗼", r"C:\x", "<|im_end|>"])
    def test_text_in_any_script_fails_nowhere(self, city: str):
        with HttpClient("local", "") as client:
            reply = client.complete(
                Request(
                    messages=[Message.of("user", f"What is the weather in {city}?")],
                    functions=FUNCTIONS[:1],
                    tool_choice="required",
                )
            )
        (call,) = reply.message.function_calls
        assert city.strip("<|>") in call.arguments["city"]

    def test_a_deadline_ends_it(self):
        with (
            Agent("local:", functions=[fetch_weather], limits=Limits(deadline_s=0.05, recalls=0)) as agent,
            pytest.raises(CallFailed),
        ):
            agent.call("What is the weather in Lisbon?")
