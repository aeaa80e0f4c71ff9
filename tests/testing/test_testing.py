"""Does the double fail as loudly as it promises?"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import BaseModel

from fsm_agent import Agent, Function, Settings
from fsm_agent.call import Request
from fsm_agent.errors import Overloaded, TimedOut, UsageError
from fsm_agent.messages import (
    ArgumentsDelta,
    FunctionCallCompleted,
    FunctionCallStarted,
    Message,
    Reasoning,
    ReasoningDelta,
    Reply,
    TextDelta,
    TokenLogprob,
    Usage,
    UsageReported,
)
from fsm_agent.testing import Delayed, FakeClock, Pieces, Script, ScriptError, as_json, function_call, token_reply

ASKED = Request(messages=[Message.of("user", "17 + 25?")])


def test_entries_of_every_kind():
    whole = Reply(
        message=Message.of("assistant", "x"), usage=Usage(input_tokens=3), logprobs=(TokenLogprob("x", -0.1),)
    )
    script = Script(
        "text",
        function_call("add", a=1),
        ["a", function_call("add", a=1)],
        whole,
        lambda request: request.messages[0].text,
    )
    replies = [script.complete(ASKED) for _ in range(5)]
    assert [r.message.text for r in replies] == ["text", "", "a", "x", "17 + 25?"]
    assert [len(r.message.function_calls) for r in replies] == [0, 1, 1, 0, 0]
    assert replies[3] is whole
    assert script.requests == [ASKED] * 5


@pytest.mark.parametrize("distribution", [{}, {"yes": 0.0}, {"yes": 70, "no": 30}])
def test_what_are_no_probabilities_is_refused(distribution):
    with pytest.raises(UsageError, match="a token"):
        token_reply(distribution)


def test_a_token_that_cannot_be_is_none_of_the_alternatives():
    assert [token for token, _ in token_reply({"no": 0.0, "yes": 1.0}).logprobs[0].top] == ["yes"]


def test_errors_are_raised():
    with pytest.raises(Overloaded, match="busy"):
        Script(Overloaded("busy")).complete(ASKED)


class Report(BaseModel):
    city: str
    degrees: int


def test_an_agent_is_a_double_with_fixed_outputs_and_errors():
    fixed = Report(city="Rome", degrees=21)
    model = Script(fixed, ValueError("down"), fixed)
    agent = Agent(Script(), output=Report).changed(model=model)
    assert agent.call("Rome?").output == fixed
    with pytest.raises(ValueError, match=r"^down$"):
        agent.call("Oslo?")
    assert asyncio.run(agent.acall("Rome!")).output == fixed
    assert [request.messages[-1].text for request in model.requests] == ["Rome?", "Oslo?", "Rome!"]


def test_a_double_among_the_functions_of_an_agent():
    inner, outer = Script(Report(city="Rome", degrees=21)), Script(function_call("weather", task="Rome?"), "Warm.")
    weather = Agent(inner, name="weather", output=Report)
    assert Agent(outer, functions=[weather]).call("?").output == "Warm."
    assert json.loads(outer.requests[-1].messages[-1].text) == {"city": "Rome", "degrees": 21}
    assert len(inner.requests) == 1


def test_a_missing_reply_is_loud():
    script = Script("one")
    script.complete(ASKED)
    with pytest.raises(ScriptError, match=r"request 2: .*17 \+ 25"):
        script.complete(ASKED)


def test_left_over_replies_are_loud():
    with pytest.raises(ScriptError, match="'one'"), Script("one"):
        pass


def test_an_error_of_the_test_is_not_hidden_by_left_over_replies():
    with pytest.raises(ZeroDivisionError), Script("one"):
        raise ZeroDivisionError


def test_what_it_cannot_reply_is_named():
    with pytest.raises(UsageError, match="42"):
        Script(42).complete(ASKED)
    with pytest.raises(UsageError, match="TimedOut"):
        Script(TimedOut).complete(ASKED)
    with pytest.raises(UsageError, match="2 texts"):
        Script(["one", "two"]).complete(ASKED)


def test_delays_are_on_its_own_clock():
    script = Script(Delayed(3, "slow"), Delayed(9, "too slow"), clock=FakeClock(start_s=100))
    assert script.complete(ASKED, timeout_s=5).message.text == "slow"
    with pytest.raises(TimedOut, match="5 s"):
        script.complete(ASKED, timeout_s=5)
    assert script.clock.now() == 108
    assert script.clock.sleeps == []


PAID = Reply.of("so").changed(usage=Usage(input_tokens=7))


@pytest.mark.parametrize(
    ("entry", "deltas"),
    [
        ("one two", [TextDelta("one"), TextDelta(" two")]),
        (Pieces("on", "e t", "wo"), [TextDelta("on"), TextDelta("e t"), TextDelta("wo")]),
        (
            [function_call("add", a=1), function_call("sub")],
            [
                *[FunctionCallStarted(0, "add"), ArgumentsDelta(0, '{"a": 1}'), FunctionCallCompleted(0)],
                *[FunctionCallStarted(1, "sub"), ArgumentsDelta(1, "{}"), FunctionCallCompleted(1)],
            ],
        ),
        (PAID, [TextDelta("so"), UsageReported(PAID.usage)]),
        ([Reasoning(text="hm"), "so"], [ReasoningDelta("hm"), TextDelta("so")]),
    ],
)
def test_streams_give_deltas_and_then_the_reply(entry, deltas):
    *first, last = Script(entry).stream(ASKED)
    assert first == deltas
    assert last == Script(entry).complete(ASKED)

    async def collected() -> list[object]:
        return [item async for item in Script(entry).astream(ASKED)]

    assert asyncio.run(collected()) == [*first, last]


@pytest.mark.parametrize("sleep", [FakeClock.sleep, lambda clock, s: asyncio.run(clock.asleep(s))])
def test_no_sleep_is_negative(sleep):
    clock = FakeClock(start_s=0)
    with pytest.raises(ValueError, match=r"-0\.5"):
        sleep(clock, -0.5)
    assert (clock.now(), clock.sleeps) == (0, [])


def test_time_moves_when_somebody_sleeps():
    clock = FakeClock(start_s=0)
    clock.sleep(2)
    asyncio.run(clock.asleep(3))
    clock.advance(5)
    assert (clock.now(), clock.sleeps) == (10, [2, 3])


def test_without_permission_no_real_model_is_asked():
    from fsm_agent.clients import client_for
    from fsm_agent.testing import no_model_requests

    client = client_for("openai-compatible:x", base_url="http://127.0.0.1:9/v1", api_key="k-123456789")
    with no_model_requests(), pytest.raises(UsageError, match="openai-compatible:x"):
        client.complete(ASKED)
    with pytest.raises(TimedOut):
        client.complete(ASKED)


def test_a_choice_of_a_function_that_is_not_offered_is_refused_as_over_http():
    script = Script("ok")
    agent = Agent(
        script,
        functions=[Function(name="count", parameters={"type": "object"})],
        settings=Settings(tool_choice="cuont"),
    )
    with pytest.raises(UsageError, match="tool_choice"):
        agent.call("How many?")
    assert script.requests == []


# Replies by what is asked


def asked(*texts: str) -> Request:
    return Request(messages=[Message.of("user", text) for text in texts])


def test_a_reply_is_found_by_what_is_asked() -> None:
    script = Script(by={"Paris": "sunny", "Rome": Script("foggy", "still foggy")})
    texts = [script.complete(asked(f"Weather in {city}?")).message.text for city in ("Rome", "Paris", "Rome")]
    assert texts == ["foggy", "sunny", "still foggy"]
    assert len(script.requests) == 3
    script.assert_exhausted()


def test_the_newest_of_a_users_messages_decides() -> None:
    two_turns = Request(
        messages=[
            Message.of("user", "Weather in Paris?"),
            Message.of("assistant", "sunny"),
            Message.of("user", "And in Rome?"),
            Message.of("assistant", "Is it Paris? I do not know."),
            Message.of("user", "That is no JSON."),
        ]
    )
    assert Script(by={"Paris": "sunny", "Rome": "foggy"}).complete(two_turns).message.text == "foggy"


@pytest.mark.parametrize(
    ("texts", "problem"),
    [(["Oslo?"], "'Oslo?'"), (["Paris or Rome?"], "'Paris' and 'Rome'"), (["Rome?", "Rome!"], "request 2")],
)
def test_a_request_that_means_no_reply_or_several_is_loud(texts: list[str], problem: str) -> None:
    script = Script(by={"Paris": "sunny", "Rome": "foggy"})
    for text in texts[:-1]:
        script.complete(asked(text))
    with pytest.raises(ScriptError) as error:
        script.complete(asked(texts[-1]))
    assert problem in str(error.value)
    with pytest.raises(ScriptError) as late:  # an error that was caught on its way
        script.assert_exhausted()
    assert problem in str(late.value)


def test_replies_that_nothing_asked_for_are_named() -> None:
    script = Script(by={"Paris": "sunny", "Rome": Script("foggy", "rainy")})
    script.complete(asked("Rome?"))
    with pytest.raises(ScriptError, match=r"'Paris': 'sunny', 'Rome': 'rainy'"):
        script.assert_exhausted()


@pytest.mark.parametrize("by", [{}, "Paris", {"": "x"}])
def test_what_is_no_mapping_of_replies_is_refused(by: object) -> None:
    with pytest.raises(UsageError, match="by of a Script"):
        Script(by=by)  # type: ignore[arg-type]


def test_replies_are_by_text_or_in_order() -> None:
    with pytest.raises(UsageError, match="by of a Script"):
        Script("one", by={"Paris": "sunny"})


def test_a_delay_of_a_reply_by_text_passes_on_the_clock_of_the_script() -> None:
    script = Script(by={"Paris": Delayed(3, "sunny")})
    assert script.complete(asked("Paris?")).message.text == "sunny"
    assert script.clock.sleeps == []
    assert script.clock.now() == FakeClock().now() + 3


@pytest.mark.parametrize("is_async", [False, True])
def test_members_that_are_asked_at_once_get_their_own_replies(is_async: bool) -> None:
    """Each of 40 has two requests, and no schedule mixes them up."""
    from fsm_agent.flows import Flow, each, end
    from fsm_agent.flows import ask as asks

    def shout(word: str) -> str:
        """Shout."""
        return word.upper()

    @asks(Agent("openai:gpt-5-mini", functions=[shout], name="bot"))
    def member(n: int) -> str:
        return f"number <{n}>"

    def numbers(n: int) -> tuple[int, ...]:
        return tuple(range(n))

    every = each("every", member, numbers)
    flow = Flow("f", int, start=every, rows=[every.done(end("over"), do=lambda n, a: int(a == tuple(wanted)))])
    wanted = [f"reply {n}" for n in range(40)]
    entries = {f"<{n}>": Script(function_call("shout", word=f"<{n - 1}>"), f"reply {n}") for n in range(40)}
    with Script(by=entries) as model:
        clients = {member: model}
        result = asyncio.run(flow.acall(40, clients=clients)) if is_async else flow.call(40, clients=clients)
    assert result.output == 1


def test_two_threads_never_get_one_entry() -> None:
    script = Script(*map(str, range(4000)))
    with ThreadPoolExecutor(8) as threads:
        texts = list(threads.map(lambda _: script.complete(ASKED).message.text, range(4000)))
    assert sorted(map(int, texts)) == list(range(4000))
    script.assert_exhausted()


def test_a_dialog_and_a_trace_are_written_as_json_too() -> None:
    result = Agent(Script("Hi.")).call("Hello")
    for values in (result.dialog.messages, result.trace):
        assert as_json(values) == [as_json(value) for value in values] != []
