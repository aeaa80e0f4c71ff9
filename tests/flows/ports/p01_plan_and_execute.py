"""LangGraph, tutorials/plan-and-execute.ipynb (2024): plan, do the first step, plan again, until there is an answer.

Its authors mean: a strong model plans, a small one does one step at a time, and what came of it shapes the next plan.
The graph is the recipe.  Theirs fails at an empty plan with an IndexError; here that is an end.
"""

from harness import Day, Port
from recipes.plan_and_execute import Answer, Plan, Quest, plan_and_execute, planning, replanning, working


def first(request):
    assert request.messages[-1].text.endswith("no other: who won")
    return "Sinner"


def second(request):
    text = request.messages[-1].text
    assert "('who won', 'Sinner')" in text
    assert text.endswith("no other: where Sinner is from")
    return "Sexten"


def check(q, log):
    assert (q.answer, q.plan) == ("Sexten", ())
    assert q.done == (("who won", "Sinner"), ("where Sinner is from", "Sexten"))


PORT = Port(
    plan_and_execute,
    Quest("Where is the winner from?"),
    [
        Day(
            "answered",
            models={
                planning: ['{"steps": ["who won", "where they are from"]}'],
                working: [first, second],
                replanning: ['{"steps": ["where Sinner is from"]}', '{"text": "Sexten"}'],
            },
        )
    ],
    check,
    gives={
        planning: [Plan(("a", "b")), Plan(())],
        working: ["done"],
        replanning: [Answer("x"), Plan(("c",)), Plan(())],
    },
    holds=lambda state, q: state != "working" or len(q.plan) > 0,
)
