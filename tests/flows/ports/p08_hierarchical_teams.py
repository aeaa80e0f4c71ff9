"""LangGraph, tutorials/multi_agent/hierarchical_agent_teams.ipynb (2024): a supervisor of supervisors.

Its authors mean: a research team and a writing team, each with a supervisor who sends its workers out until the team
is done; a supervisor above them sends the teams out, and sees only what a team has come to.  A team is a flow, made
by one function, and a state of the flow above.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from harness import Day, Port, agent

from fsm_agent.flows import Flow, FlowLimits, call, end, subflow


@dataclass(frozen=True)
class Work:
    task: str
    reports: tuple[str, ...] = ()


def report(w: Work, text: str) -> Work:
    return replace(w, reports=(*w.reports, text))


def worker(name: str) -> Any:
    @call(agent(name), name=name)
    def working(w: Work) -> str:
        return f"You are the {name}. {w.task} {w.reports}"

    return working


def team(name: str, *workers: Any) -> tuple[Any, Flow[Work]]:
    """Return the supervisor of a team, and the team."""
    finish = "FINISH"
    choice = Enum(f"{name}_choice", {worker.name: worker.name for worker in workers} | {finish: finish})

    @call(agent(f"head of {name}", choice), name=f"{name}_head")
    def heading(w: Work) -> str:
        return f"Who of {[worker.name for worker in workers]} is next? {w.task} {w.reports}"

    return heading, Flow(
        name,
        Work,
        start=heading,
        limits=FlowLimits(steps=20),
        rows=[
            *[heading.done(worker, of=choice[worker.name]) for worker in workers],
            heading.done(end(f"{name}_done"), of=choice[finish]),
            *[worker.done(heading, do=report) for worker in workers],
        ],
    )


search, scrape = worker("search"), worker("scrape")
note, write, chart = worker("note_taker"), worker("doc_writer"), worker("chart_generator")
research_head, research = team("research", search, scrape)
writing_head, writing = team("writing", note, write, chart)


class Team(Enum):
    RESEARCH = "research"
    WRITING = "writing"
    FINISH = "FINISH"


@call(agent("head", Team))
def heading(w: Work) -> str:
    return f"Which team is next? {w.task} {w.reports}"


def ask_team(w: Work) -> Work:
    return Work(f"{w.task} Known: {w.reports}")


researching = subflow("researching", research, ask_team)
documenting = subflow("documenting", writing, ask_team)


def keep_last(w: Work, team: Work) -> Work:
    """Keep what the team has come to, and not how."""
    return replace(w, reports=(*w.reports, team.reports[-1])) if team.reports else w


FLOW = Flow(
    "hierarchical_teams",
    Work,
    start=heading,
    limits=FlowLimits(steps=20),
    rows=[
        heading.done(researching, of=Team.RESEARCH),
        heading.done(documenting, of=Team.WRITING),
        heading.done(end("finished"), of=Team.FINISH),
        researching.done(heading, do=keep_last),
        documenting.done(heading, do=keep_last),
    ],
)


def written(request):
    text = request.messages[-1].text
    assert "agents are old" in text
    assert "a page about it" not in text, "how the other team came to it is its own affair"
    return "a poem"


def check(w, log):
    assert w.reports == ("agents are old", "a poem with a chart")


PORT = Port(
    FLOW,
    Work("Write a poem about agents."),
    [
        Day(
            "finished",
            models={
                heading: ['"research"', '"writing"', '"FINISH"'],
                research_head: ['"search"', '"scrape"', '"FINISH"'],
                search: ["a page about it"],
                scrape: ["agents are old"],
                writing_head: ['"doc_writer"', '"chart_generator"', '"FINISH"'],
                write: [written],
                chart: ["a poem with a chart"],
            },
        )
    ],
    check,
    gives={
        heading: [*Team],
        researching: [Work("", ("x",)), Work("")],
        documenting: [Work("", ("y",))],
    },
    limit=100,
)
