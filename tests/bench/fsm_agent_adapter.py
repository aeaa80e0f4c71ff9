"""fsm_agent: an `Agent` with a model in this process, and with one behind an OpenAI-compatible server."""

import workloads as w

from fsm_agent import Agent, FunctionCall, Limits, Message, Reply, Usage, client_for, function
from fsm_agent.messages.event import TextDelta

VENV = "fsm_agent"
ROLE = "subject"
KIND = "async"
DISTS = ["fsm-agent", "httpx"]
IMPORT = "from fsm_agent import Agent, function; from fsm_agent.clients.client import HttpClient"
NOTES = "the machine, its record, its trace and its events are those of every call; nothing is switched off"


class InProcess:
    """A model in this process, by the `Client` protocol."""

    name = "in-process"

    def __init__(self, script):
        self._next = script.next

    def complete(self, request, *, timeout_s=None):
        turn = self._next()
        asked = [FunctionCall(name=call.name, arguments_json=call.json, provider_id=call.id) for call in turn.calls]
        return Reply(
            message=Message.of("assistant", *([turn.text] if turn.text else ()), *asked),
            usage=Usage(input_tokens=50, output_tokens=10),
        )

    async def acomplete(self, request, *, timeout_s=None):
        return self.complete(request)


def _online(base_url):
    return client_for(f"openai-chat:{w.MODEL}", base_url=base_url, api_key="stub")


def _agent(client, tool, max_turns):
    return Agent(client, system=w.SYSTEM, functions=[function(tool)], limits=Limits(rounds=max_turns))


def _call(agent):
    async def call():
        return (await agent.acall(w.PROMPT)).output

    return call


def offline(script, tool, max_turns):
    return _call(_agent(InProcess(script), tool, max_turns))


def online(base_url, tool, max_turns):
    return _call(_agent(_online(base_url), tool, max_turns))


def online_many(base_url, tool, max_turns, n):
    call = online(base_url, tool, max_turns)  # an agent keeps no conversation, so all may share one
    return [call] * n


def stream(base_url):
    agent = Agent(_online(base_url), system=w.SYSTEM)

    async def call(sink):
        async for event in agent.astream(w.PROMPT):
            if isinstance(event, TextDelta):
                sink(event.text)

    return call


def structured(script, model):
    return _call(Agent(InProcess(script), system=w.SYSTEM, output=model, limits=Limits(parse_retries=3)))
