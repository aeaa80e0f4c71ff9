"""LangGraph, langgraph-swarm-py (2025): agents that hand over to each other; who spoke last answers the next turn.

Its authors mean: a handover is a tool of each agent, the one who takes over sees the whole dialog, and the checkpoint
keeps who is active from turn to turn.  The graph is the recipe: a handover is a type of answer.
"""

from harness import Day, Port
from recipes.swarm import Chat, Handover, Name, Reply, speaking, swarm, user

from fsm_agent import Agent
from fsm_agent.testing import Script
from fsm_agent.testing import call as asks


def bob(request):
    assert "like a pirate" in request.messages[0].text
    assert any("speak to Bob" in message.text for message in request.messages), "he sees what was said"
    return '{"text": "Arr!"}'


def still_bob(request):
    assert "like a pirate" in request.messages[0].text, "in another process, too"
    return '{"to": "alice"}'


def alice(request):
    assert "What is 5 + 7?" in [message.text for message in request.messages]
    assert "add numbers" in request.messages[0].text
    assert [f.name for f in request.functions] == ["add"]
    return asks("add", a=5, b=7)


def check(c, log):
    assert (c.reply, c.active) == ("12", Name.ALICE)


def whole(text):
    return Agent(Script(text), name="x", output=Reply | Handover).call("x")


PORT = Port(
    swarm,
    Chat("I'd like to speak to Bob."),
    [
        Day("user", models={speaking: ['{"to": "bob"}', bob]}, shows="Arr!"),
        Day("user", {user: "What is 5 + 7?"}, {speaking: [still_bob, alice, '{"text": "12"}']}),
        Day("over", {user: "bye"}),
    ],
    check,
    gives={speaking: [whole('{"text": "hi"}'), whole('{"to": "bob"}')], user: ["bye", "more"]},
)
