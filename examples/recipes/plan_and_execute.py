"""Plan and execute.

A large model makes a plan. A small model carries out one step at a time, and the large model uses the result to revise
the plan. In this way, a cheap model can do long tasks. You can read the plan in the run's data at any time, and stop or
change it between two steps.

- `replanning` returns one of two types, `Answer` or `Plan`, and each has its own rows.
- An empty plan leads to a named end state instead of a crash three states later.
- `FlowLimits(steps=30)` stops a planner that always finds one more step.

```console
$ python examples/recipes/plan_and_execute.py
who won in 2024: Jannik Sinner
where Jannik Sinner is from: Sexten
answered: Sexten
```

**When not to use it.** For a question that takes two or three function calls, an `Agent` with these functions is
shorter and faster. If steps run in parallel, depend on each other and need validation, use [the
orchestrator](../orchestrator.md).
"""

from dataclasses import dataclass, replace

from fsm_agent import Agent
from fsm_agent.flows import Flow, FlowLimits, ask, end
from fsm_agent.testing import Script


@dataclass(frozen=True)
class Quest:
    question: str
    plan: tuple[str, ...] = ()
    done: tuple[tuple[str, str], ...] = ()  # steps, and what came of them
    answer: str = ""


@dataclass(frozen=True)
class Plan:
    """The steps that are still to be done."""

    steps: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """The answer, when no more steps are needed."""

    text: str


planner = Agent("openai:gpt-5", name="planner")
worker = Agent("openai:gpt-5-mini", name="worker")  # a smaller one, with the functions that it needs


@ask(planner, Plan)
def planning(q: Quest) -> str:
    return f"Write a plan of a few simple steps. The question: {q.question}"


@ask(worker)
def working(q: Quest) -> str:
    return f"Known: {q.done}. Do this step, and no other: {q.plan[0]}"


@ask(planner, Answer, Plan)
def replanning(q: Quest) -> str:
    return f"{q.question} Done: {q.done}. Planned: {q.plan}. Answer, or write the plan of what is left."


def has_steps(q: Quest, plan: Plan) -> bool:
    return bool(plan.steps)


def keep_plan(q: Quest, plan: Plan) -> Quest:
    return replace(q, plan=plan.steps)


def keep_step(q: Quest, found: str) -> Quest:
    return replace(q, plan=q.plan[1:], done=(*q.done, (q.plan[0], found)))


answered = end("answered")
no_plan = end("no_plan", failed="a plan had no steps")

plan_and_execute = Flow(
    "plan_and_execute",
    Quest,
    start=planning,
    limits=FlowLimits(steps=30),
    rows=[
        planning.done(working, when=has_steps, do=keep_plan),
        planning.done(no_plan),
        working.done(replanning, do=keep_step),
        replanning.done(answered, of=Answer, do=lambda q, a: replace(q, answer=a.text)),
        replanning.done(working, of=Plan, when=has_steps, do=keep_plan),
        replanning.done(no_plan, of=Plan),
    ],
)


def main() -> None:
    models = {
        planning: Script('{"steps": ["who won in 2024", "where that person is from"]}'),
        working: Script("Jannik Sinner", "Sexten"),
        replanning: Script('{"steps": ["where Jannik Sinner is from"]}', '{"text": "Sexten"}'),
    }
    quest = Quest("Where is the winner of the Australian Open of 2024 from?")
    result = plan_and_execute.call(quest, clients=models)
    for step, found in result.output.done:
        print(f"{step}: {found}")
    print(f"{result.state}: {result.output.answer}")


if __name__ == "__main__":
    main()
