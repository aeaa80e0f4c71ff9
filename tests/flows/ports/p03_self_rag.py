"""LangGraph, tutorials/rag/langgraph_self_rag.ipynb (2024; Asai et al. 2023): grade documents, then the answer.

Its authors mean: what is not relevant is dropped; with nothing left the question is rewritten; an answer that is not
grounded is written again, and one that is of no use leads to a new question.  The graph is the recipe.  Theirs grades
twice inside of one edge, which is two states here, and it may loop for ever, which three tries end here.
"""

from harness import Day, Port
from recipes.self_rag import (
    Search,
    answering,
    grading,
    grounded,
    relevant,
    retrieving,
    rewriting,
    self_rag,
    useful,
)


def is_of_agents(request):
    document = request.messages[-1].text.partition("? ")[2]
    return "true" if "gents" in document or "store" in document else "false"


def seen(request):
    text = request.messages[-1].text
    assert "Agents have short memories." in text
    assert "Elephants" not in text, "it is dropped"
    return "Short, and blue."


def check(s, log):
    assert (s.answer, s.query, s.found) == ("A store.", "agent memory", ("A store is one.",))
    assert s.tries == 3, "nothing found, an answer that was not grounded, and one that was of no use"


PORT = Port(
    self_rag,
    Search("What is the memory of an agent?", "recollection"),
    [
        Day(
            "answered",
            models={
                relevant: [is_of_agents] * 3,
                answering: [seen, "Short.", "A store."],
                grounded: ["false", "true", "true"],
                useful: ["false", "true"],
                rewriting: ["memory", "agent memory"],
            },
        )
    ],
    check,
    gives={
        retrieving: [("a", "b")],
        grading: [(True, False), (False, False)],
        rewriting: ["other words"],
        answering: ["text"],
        grounded: [True, False],
        useful: [True, False],
    },
    holds=lambda state, s: s.tries <= 3 and (state != "useful" or s.answer == "text"),
)
