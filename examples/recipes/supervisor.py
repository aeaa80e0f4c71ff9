"""A supervisor.

A model decides who works next, gets a report from each worker, and decides when the work is done. To add a worker, add
an enum member, a state and two rows. The trace shows who worked, when, and with what result.

- The choice is an `Enum`. If the model invents a name, the call asks again automatically. If a member has no row, you
  get an error when you define the flow.
- `FlowLimits(steps=20)` stops a supervisor that is never satisfied, and the trace shows what it cost.
- A worker that needs several states can be a separate flow, in a `subflow`. You can build teams of teams in the same
  way.

```console
$ python examples/recipes/supervisor.py
finished
GDP of the UK: 2.3, 2.5, 2.7
plot([2.3, 2.5, 2.7])
```

**When not to use it.** If the order is known, write it as rows: a model that chooses the order costs a request for each
step, and is sometimes wrong. If the work can be planned at the start, [plan and execute](plan-and-execute.md) asks the
large model less often, and [the orchestrator](../orchestrator.md) adds retries and validation.
"""

from dataclasses import dataclass, replace
from enum import Enum

from fsm_agent import Agent
from fsm_agent.flows import Flow, FlowLimits, ask, end
from fsm_agent.testing import Script


class Next(Enum):
    RESEARCHER = "researcher"
    CODER = "coder"
    FINISH = "finish"


@dataclass(frozen=True)
class Team:
    task: str
    reports: tuple[str, ...] = ()


@ask(Agent("openai:gpt-5", name="supervisor", output=Next))
def supervising(t: Team) -> str:
    return f"Who works next on {t.task!r}, or is it finished? {t.reports}"


@ask(Agent("openai:gpt-5-mini", name="researcher"))
def researching(t: Team) -> str:
    return f"Find out what is needed for {t.task!r}. {t.reports}"


@ask(Agent("openai:gpt-5-mini", name="coder"))
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
