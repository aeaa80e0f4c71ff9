"""LangGraph, tutorials/reflexion.ipynb (2024; Shinn et al. 2023): draft, search, revise, up to a number of times.

Its authors mean: one model answers, criticizes itself and names searches in one structured answer; the revision sees
the old answer, the criticism and what was found.  The graph is the recipe.  Their responder that repeats an invalid
answer is what every agent call does here.
"""

from harness import Day, Port
from recipes.reflexion import Draft, Essay, drafting, reflexion, revising, searching


def revised(request):
    text = request.messages[-1].text
    assert "It misses: how much" in text
    assert "[rain 2026: 3 pages]" in text
    return '{"answer": "More.", "missing": "where", "queries": ["rain in Rome"]}'


def settled(request):
    assert "Your answer: More." in request.messages[-1].text
    return '{"answer": "More in Rome.", "missing": "nothing", "queries": ["one too many"]}'


def check(e, log):
    assert (e.draft.answer, e.revisions) == ("More in Rome.", 2)
    assert e.sources == ("[rain 2025: 3 pages]", "[rain 2026: 3 pages]", "[rain in Rome: 3 pages]")


PORT = Port(
    reflexion,
    Essay("Does it rain more?"),
    [
        Day(
            "written",
            models={
                drafting: [
                    "no JSON: asked again",
                    '{"answer": "Yes.", "missing": "how much", "queries": ["rain 2025", "rain 2026"]}',
                ],
                revising: [revised, settled],
            },
        )
    ],
    check,
    gives={
        drafting: [Draft("a", "b", ("c",)), Draft("a", "b")],
        searching: [("x",), ()],
        revising: [Draft("d", "e", ("f",)), Draft("d", "")],
    },
    holds=lambda state, e: e.revisions <= 2,
)
