"""Polling with a limit.

A job runs on another system, which offers no callback. The flow starts the job once and polls until it is ready. You
can wait hours for a batch, a build or a video without keeping a process alive: between two polls, the run exists only
in the store, and `fsm-agent worker` continues it when the next poll is due.

- `looking` returns one of two types, and each has its own rows. The data counts the polls that found nothing.
- The pause is as long as the server asks for (`Retry-After`), because `pause` accepts a function of the data.
- Two limits end the polling: a guard on the number of polls, and the deadline of the whole flow.
- `submitting` is marked `once=True`, so no second job starts after a crash unless you say so.

```console
$ python examples/recipes/polling.py
ready after 2 naps: A LONG TEXT
```

**When not to use it.** If the other side can call back, let it answer a `wait`, which costs nothing while it waits. To
retry after transient errors, you need no table: use `@execute(retries=Retries(…))`.
"""

from dataclasses import dataclass, replace

from fsm_agent import Context
from fsm_agent.flows import Flow, FlowLimits, end, execute, into, pause

LOOKS = 5


@dataclass(frozen=True)
class Job:
    text: str
    id: str = ""
    looks: int = 0
    look_after_s: float = 0.0
    result: str = ""


@dataclass(frozen=True)
class Ready:
    result: str


@dataclass(frozen=True)
class Running:
    retry_after_s: float  # as a server says


@execute(once=True)
def submitting(j: Job, context: Context[int]) -> str:
    """Stands in for a request that starts a job."""
    return f"job of {context.idempotency_key}"


@execute
def looking(j: Job, context: Context[int]) -> Ready | Running:
    """Stands in for a request that checks the job, which is ready after as many polls as ``deps`` says."""
    return Ready(j.text.upper()) if j.looks + 1 >= context.deps else Running(retry_after_s=0.02)


def as_asked(j: Job) -> float:
    return j.look_after_s


napping = pause("napping", as_asked)


def may_look(j: Job) -> bool:
    return j.looks + 1 < LOOKS


def count(j: Job, a: Running) -> Job:
    return replace(j, looks=j.looks + 1, look_after_s=a.retry_after_s)


polling = Flow(
    "polling",
    Job,
    start=submitting,
    limits=FlowLimits(deadline_s=3600),
    rows=[
        submitting.done(looking, do=into("id")),
        looking.done(end("ready"), of=Ready, do=lambda j, a: replace(j, result=a.result)),
        looking.done(napping, of=Running, when=may_look, do=count),
        looking.done(end("given_up", failed=f"not ready after {LOOKS} looks"), of=Running),
        napping.elapsed(looking),
    ],
)


def main() -> None:
    result = polling.call(Job("a long text"), deps=3)
    print(f"{result.state} after {result.output.looks} naps: {result.output.result}")


if __name__ == "__main__":
    main()
