"""Do agents take payloads as they take text, and leave out what their model cannot see?"""

from __future__ import annotations

import asyncio
import logging

import pytest

from fsm_agent import Agent, AgentBase, Dialog, MemoryStore, Message, Payload, Prompt
from fsm_agent.errors import UsageError
from fsm_agent.messages import Text
from fsm_agent.testing import Script

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
PICTURE = Payload.text("What is this?").with_image_data(PNG)


class Blind(Script):
    takes_images = False


def sent(script: Script) -> list[list[str]]:
    return [[part.kind for part in request.messages[-1].parts] for request in script.requests]


def test_every_way_to_call_takes_one():
    script = Script(*"abcdefg")
    agent = Agent(script, system="Be terse.", name="clerk", store=MemoryStore())
    agent.call(PICTURE)
    asyncio.run(agent.acall(PICTURE))
    list(agent.stream(PICTURE))
    agent.run(agent.prepare(PICTURE))
    agent.conversation("c").call(PICTURE, run_id="r")
    agent.conversation("c").call(PICTURE, run_id="r")  # the same turn
    agent.call(PICTURE, after=agent.call("hi"))
    assert sent(script) == [["text", "image"]] * 5 + [["text"], ["text", "image"]]
    assert {request.messages[0].text for request in script.requests} == {"Be terse."}


def test_a_text_and_a_payload_of_it_are_one_task():
    script = Script("a", "b")
    agent = Agent(script)
    agent.call("{{ x }}")
    agent.call(Payload.text("{{ x }}"))
    assert script.requests[0].messages == script.requests[1].messages


@pytest.mark.parametrize(
    "task",
    [
        " \n",
        Payload.text(" "),
        Prompt("{{ x }}")(x=""),
        Message.of("user", " "),
        [{"role": "user", "content": ""}],
        Dialog([Message.of("user", "hi"), Message.of("assistant", "Hello."), Message.of("user")]),
        [],
    ],
    ids=lambda task: type(task).__name__,
)
def test_an_empty_task_is_refused_in_every_form(task):
    script = Script("a")
    with pytest.raises(UsageError, match="task"):
        Agent(script).call(task)
    assert script.requests == []


class TestWithoutImages:
    def test_the_text_is_sent_after_one_warning(self, caplog):
        script = Blind(*"abcd", name="blind")
        agent = Agent(script)
        with caplog.at_level(logging.WARNING, "fsm_agent"):
            for _ in range(3):
                agent.call(PICTURE)
            agent.call(Payload.text("a").with_document(b"b").with_document(b"%PDF-1.7"))
        assert sent(script) == [["text"]] * 3 + [["text", "document"]]
        (record,) = caplog.records
        assert "'blind'" in record.getMessage()


class TestOfAClass:
    @pytest.fixture
    def looker(self):
        class Looker(AgentBase[str], register=False):
            expertise = "You look."
            prompt = Prompt("Task for {{ who }}: {{ task }}")

        return Looker

    @pytest.mark.parametrize("kind", [Script, Blind])
    def test_the_prompt_has_the_text_and_the_rest_follows(self, looker, kind):
        script = kind("a", "b")
        one = looker(client=script)
        assert one.call(one.prompt(task=PICTURE, who="Ada"), args={"temperature": 0}).output == "a"
        bob = one.prompt(task=PICTURE, who="Bob")
        one.call(bob, after=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
        message = script.requests[0].messages[-1]
        assert message.parts[0] == Text("Task for Ada: What is this?")
        assert sent(script) == [["text", "image"] if kind is Script else ["text"]] * 2
        assert script.requests[0].settings.temperature == 0
        assert [m.text for m in script.requests[1].messages] == ["You look.", "hi", "ho", "Task for Bob: What is this?"]
