"""A supervisor: a model says who works next; each worker reports to it, and it says when the work is done.

Run it with ``python examples/recipes/supervisor.py``: scripts stand in for the models.
"""

from dataclasses import dataclass, replace
from enum import Enum

from fsm_agent import Agent
from fsm_agent.flows import Flow, FlowLimits, call, end
from fsm_agent.testing import Script


class Next(Enum):
    RESEARCHER = "researcher"
    CODER = "coder"
    FINISH = "finish"


@dataclass(frozen=True)
class Team:
    task: str
    reports: tuple[str, ...] = ()


@call(Agent("openai:gpt-5", name="supervisor", output=Next))
def supervising(t: Team) -> str:
    return f"Who works next on {t.task!r}, or is it finished? {t.reports}"


@call(Agent("openai:gpt-5-mini", name="researcher"))
def researching(t: Team) -> str:
    return f"Find out what is needed for {t.task!r}. {t.reports}"


@call(Agent("openai:gpt-5-mini", name="coder"))
def coding(t: Team) -> str:
    return f"Write the code for {t.task!r}. {t.reports}"


def report(t: Team, text: str) -> Team:
    return replace(t, reports=(*t.reports, text))


supervisor = Flow(
    "supervisor",
    Team,
    start=supervising,
    limits=FlowLimits(steps=20),  # a supervisor may never be content
    rows=[
        supervising.done(researching, of=Next.RESEARCHER),
        supervising.done(coding, of=Next.CODER),
        supervising.done(end("finished"), of=Next.FINISH),
        researching.done(supervising, do=report),
        coding.done(supervising, do=report),
    ],
)


def main() -> None:
    models = {
        supervising: Script('"researcher"', '"coder"', '"finish"'),
        researching: Script("GDP of the UK: 2.3, 2.5, 2.7"),
        coding: Script("plot([2.3, 2.5, 2.7])"),
    }
    result = supervisor.call(Team("plot the GDP of the UK"), clients=models)
    print(result.state, *result.output.reports, sep="\n")


if __name__ == "__main__":
    main()
