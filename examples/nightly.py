"""A nightly batch.

Any number of workers process many tasks overnight, and a report shows the results in the morning. Each task ends once;
an interrupted function runs again, unless it is marked `once`.

- A ticket is a run with its own name. Submitting it twice changes nothing.
- Workers share the store: a file, or Postgres for several machines. If a worker is killed, nothing is lost: another one
  takes over its runs.
- The report says why a ticket failed, and `fsm-agent runs retry` continues it. A retry does not help a ticket that
  exceeded its budget: submit it again under another name, with other limits.

```sh
python examples/nightly.py submit tickets.jsonl
python examples/nightly.py work
python examples/nightly.py report
```
"""

import json
import sys
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

from pydantic import BaseModel

from fsm_agent import Agent, CallFailed, Client, Limits, Worker
from fsm_agent.store import Runs

STORE = "nightly.db"
MODEL: str | Client = "openai:gpt-5-mini"


class Kind(Enum):
    BUG = "bug"
    WISH = "wish"
    QUESTION = "question"


class Sorted(BaseModel):
    kind: Kind
    urgent: bool
    summary: str


def sorter() -> Agent[object, Sorted]:
    limits = Limits(tokens=20_000, deadline_s=300)
    return Agent(MODEL, system="You sort tickets.", output=Sorted, limits=limits, name="sorter", store=Runs(STORE))


def submit(path: str) -> None:
    """Put each line into the store as a ticket; existing tickets do not change."""
    agent = sorter()
    day = datetime.now(UTC).date().isoformat()
    for line in Path(path).read_text("utf-8").splitlines():
        ticket = json.loads(line)
        agent.runs.submit(ticket["text"], run_id=f"ticket-{ticket['id']}", extra={"ticket": ticket["id"], "day": day})


def work() -> None:
    """Do the work that is due, and exit; cron starts the next worker."""
    agent = sorter()
    Worker([agent], agent.runs.all).run(once=True)


def report() -> None:
    """Print the tickets that have ended, urgent ones first, and those that failed or are waiting."""
    agent, done, open_ = sorter(), list[tuple[bool, str]](), list[str]()
    for run in agent.runs.all.store.list(agent="sorter", limit=10_000):
        if not run.is_ended:
            open_.append(f"{run.id}: {run.state or 'not begun'}")
            continue
        try:
            found = agent.runs.get(run.id).result().output
            done.append((not found.urgent, f"{run.id}: {found.kind.value}: {found.summary}"))
        except CallFailed as error:
            open_.append(f"{run.id}: failed: {error.reason}")
    print(*[line for _, line in sorted(done)], *sorted(open_), sep="\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["submit", path]:
            submit(path)
        case ["work"]:
            work()
        case ["report"]:
            report()
        case _:
            sys.exit("usage: python examples/nightly.py submit tickets.jsonl | work | report")
