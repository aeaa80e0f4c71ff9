"""OpenAI Agents SDK, examples/agent_patterns/agents_as_tools.py (2025): a translator of translators.

Its authors mean: an orchestrating agent is given one agent for each language as a tool, calls those that the user
asks for, and a second agent, run after it, puts the translations together.  The tools are agents as functions here as
well; what is plain code between two runs is the table.
"""

from dataclasses import dataclass, replace

from harness import Day, Port, agent

from fsm_agent.flows import Flow, call, end
from fsm_agent.testing import Script
from fsm_agent.testing import call as asks


@dataclass(frozen=True)
class Task:
    text: str
    translations: str = ""
    final: str = ""


def language(name: str, word: str):
    from fsm_agent import Agent

    translator = Agent(Script(*[word] * 9), name=name, system=f"You translate to {name}.")
    return translator.as_function(f"to_{name}", f"Translate to {name}")


orchestrator = agent("orchestrator", functions=[language("spanish", "Hola"), language("french", "Salut")])


@call(orchestrator)
def translating(t: Task) -> str:
    return t.text


@call(agent("synthesizer"))
def joining(t: Task) -> str:
    return f"Check and join these translations: {t.translations}"


FLOW = Flow(
    "agents_as_tools",
    Task,
    start=translating,
    rows=[
        translating.done(joining, do=lambda t, text: replace(t, translations=text)),
        joining.done(end("translated"), do=lambda t, text: replace(t, final=text)),
    ],
)


def both(request):
    told = [part.text for message in request.messages for part in message.parts if part.kind == "function_result"]
    return ", ".join(told)


def joined(request):
    assert request.messages[-1].text.endswith(": Hola, Salut")
    return "Hola! Salut!"


def check(t, log):
    assert (t.translations, t.final) == ("Hola, Salut", "Hola! Salut!")


PORT = Port(
    FLOW,
    Task("Say 'Hi' in Spanish and French"),
    [
        Day(
            "translated",
            models={
                translating: [[asks("to_spanish", task="Hi"), asks("to_french", task="Hi")], both],
                joining: [joined],
            },
        )
    ],
    check,
    gives={translating: ["a"], joining: ["b"]},
)
