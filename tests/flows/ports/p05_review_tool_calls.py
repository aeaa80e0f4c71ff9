"""LangGraph, how-tos/human_in_the_loop/review-tool-calls.ipynb (2024): a person reviews what a model wants to call.

Its authors mean: before a sensitive tool runs, a person lets it run, changes its arguments, or answers in its place
with feedback for the model; a call that needs none is not held up.  Their graph of four nodes is one agent call here,
with a function that needs an approval.
"""

from dataclasses import dataclass, replace
from typing import Any

from harness import Day, Port, agent, log

from fsm_agent import Approved, Context, Denied, Modified, function
from fsm_agent.flows import Flow, call, end
from fsm_agent.testing import call as asks


@dataclass(frozen=True)
class Question:
    text: str
    answer: str = ""


@function(needs_approval=True)
def weather(context: Context[Any], city: str) -> str:
    """Say how the weather is."""
    return log(context, f"sunny in {city}")


@call(agent("forecaster", functions=[weather]))
def answering(q: Question) -> str:
    return q.text


FLOW = Flow(
    "review_tool_calls",
    Question,
    start=answering,
    rows=[answering.done(end("answered"), do=lambda q, text: replace(q, answer=text))],
)


def told(request):
    """Ask again as the person has said."""
    assert "San Francisco, USA" in request.messages[-1].parts[0].text
    return asks("weather", city="San Francisco, USA")


def check(q, log):
    assert q.answer == "Sunny."
    assert log == ["sunny in SF, USA", "sunny in San Francisco, USA"], "as changed, not as denied, as approved"


PORT = Port(
    FLOW,
    Question("What's the weather in SF, and again?"),
    [
        Day("answering", models={answering: [asks("weather", city="sf")]}),
        Day(
            "answering",
            {"answering#1/ask:1.0": Modified('{"city": "SF, USA"}')},
            {answering: [asks("weather", city="san fran")]},
        ),
        Day("answering", {"answering#1/ask:3.0": Denied("use San Francisco, USA")}, {answering: [told]}),
        Day("answered", {"answering#1/ask:5.0": Approved()}, {answering: ["Sunny."]}),
    ],
    check,
    gives={answering: ["text"]},
)
