"""LangGraph, tutorials/lats.ipynb (2024; Zhou et al. 2023): Language Agent Tree Search.

Its authors mean: from the best leaf (by the upper confidence bound) several candidates are tried and reflected upon;
the scores run back to the root; it ends when a node is a solution, or the tree is as deep as may be.  Their tree of
objects that point at each other is a tuple of nodes with the index of the parent, and candidates are members of an
`each`.
"""

import math
from dataclasses import dataclass, replace

from harness import Day, Port, agent

from fsm_agent.flows import Flow, call, each, end, subflow

WIDTH, DEPTH = 2, 3


@dataclass(frozen=True)
class Node:
    text: str
    score: float
    is_solution: bool
    parent: int
    depth: int
    visits: int = 1


@dataclass(frozen=True)
class Tree:
    question: str
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Reflection:
    score: int  # of ten
    is_solution: bool


@dataclass(frozen=True)
class Candidate:
    """One try from a node: what it continues, its text, and what is thought of it."""

    question: str
    path: tuple[str, ...]
    number: int
    parent: int
    depth: int
    text: str = ""
    score: float = 0.0
    is_solution: bool = False


@call(agent("searcher"))
def trying(c: Candidate) -> str:
    return f"{c.question} So far: {c.path}. Try number {c.number}"


@call(agent("critic", Reflection))
def reflecting(c: Candidate) -> str:
    return f"Grade this answer to {c.question!r}: {c.text}"


CANDIDATE = Flow(
    "candidate",
    Candidate,
    start=trying,
    rows=[
        trying.done(reflecting, do=lambda c, text: replace(c, text=text)),
        reflecting.done(end("reflected"), do=lambda c, r: replace(c, score=r.score / 10, is_solution=r.is_solution)),
    ],
)


def bound(nodes: tuple[Node, ...], n: int) -> float:
    """Return the upper confidence bound of a node."""
    node = nodes[n]
    if node.parent < 0:
        return node.score
    return node.score + math.sqrt(math.log(nodes[node.parent].visits) / node.visits)


def best_leaf(nodes: tuple[Node, ...]) -> int:
    here = 0
    while inner := [n for n, node in enumerate(nodes) if node.parent == here]:
        here = max(inner, key=lambda n: bound(nodes, n))
    return here


def path_to(nodes: tuple[Node, ...], n: int) -> tuple[str, ...]:
    return () if n < 0 else (*path_to(nodes, nodes[n].parent), nodes[n].text)


def candidates(t: Tree) -> list[Candidate]:
    if not t.nodes:
        return [Candidate(t.question, (), 0, -1, 1)]
    leaf = best_leaf(t.nodes)
    path = path_to(t.nodes, leaf)
    return [Candidate(t.question, path, n, leaf, t.nodes[leaf].depth + 1) for n in range(WIDTH)]


expanding = each("expanding", subflow("candidate", CANDIDATE, lambda c: c), candidates)


def grow(t: Tree, found: tuple[Candidate, ...]) -> Tree:
    """Add the candidates, and run their scores back to the root as running means."""
    nodes = list(t.nodes)
    for c in found:
        nodes.append(Node(c.text, c.score, c.is_solution, c.parent, c.depth))
        up = c.parent
        while up >= 0:
            node = nodes[up]
            mean = (node.score * node.visits + c.score) / (node.visits + 1)
            nodes[up] = replace(node, score=mean, visits=node.visits + 1)
            up = node.parent
    return replace(t, nodes=tuple(nodes))


def is_over(t: Tree, found: tuple[Candidate, ...]) -> bool:
    return any(c.is_solution or c.depth >= DEPTH for c in found)


FLOW = Flow(
    "lats",
    Tree,
    start=expanding,
    rows=[
        expanding.done(end("searched"), when=is_over, do=grow),
        expanding.done(expanding, do=grow),
    ],
)


def tried(request):
    so_far, _, number = request.messages[-1].text.partition(". Try number ")
    return f"{'a' if '()' in so_far else 'b' if ', ' not in so_far.partition('So far: ')[2][:-2] else 'c'}{number}"


def graded(request):
    text = request.messages[-1].text.rpartition(": ")[2]
    return {
        "a0": '{"score": 4, "is_solution": false}',
        "b0": '{"score": 2, "is_solution": false}',
        "b1": '{"score": 7, "is_solution": false}',
        "c0": '{"score": 9, "is_solution": true}',
        "c1": '{"score": 1, "is_solution": false}',
    }[text]


def check(t, log):
    assert [(n.text, n.parent, n.depth) for n in t.nodes] == [
        ("a0", -1, 1),
        ("b0", 0, 2),
        ("b1", 0, 2),
        ("c0", 2, 3),
        ("c1", 2, 3),
    ], "it continues from the better of two"
    assert [n.visits for n in t.nodes] == [5, 1, 3, 1, 1]
    assert math.isclose(t.nodes[2].score, (7 + 9 + 1) / 30)
    assert math.isclose(t.nodes[0].score, (4 + 2 + 7 + 9 + 1) / 50)


def candidate(parent: int, depth: int, score: float, is_solution: bool = False) -> Candidate:
    return Candidate("?", (), 0, parent, depth, "x", score, is_solution)


PORT = Port(
    FLOW,
    Tree("How is the lift off?"),
    [Day("searched", models={trying: [tried] * 5, reflecting: [graded] * 5})],
    check,
    gives={expanding: [(candidate(-1, 1, 0.5),), (candidate(-1, 3, 0.5),), (candidate(-1, 1, 1.0, True),)]},
    limit=30,
)
