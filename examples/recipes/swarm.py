"""A swarm.

Several agents talk to one user in one dialog. The active agent answers, or hands over to a colleague, who sees the
whole dialog. No agent is in charge of the others. Use this if departments or experts pass customers on to one another,
or if each language has an agent. The agent that spoke last answers the next turn, in any process.

- All agents share one state, and the data says which agent it asks. A handover is one type of answer; a reply is the
  other.
- The dialog is in the data. Each agent continues it with its own system prompt and functions.
- The user is a `wait` state, so the next turn may come next week. With `store=`, continue with
  `swarm.runs.resume(run_id, {user: "…"})`.

```console
$ python examples/recipes/swarm.py
bob: Arr!
alice: 12
over
```

**When not to use it.** If the agents do not need to see each other's messages, give one agent the others [as
functions](../agents.md). If one of them is in charge, use a [supervisor](supervisor.md). If you keep the swarm and
handovers go round in circles, count them in the data, and limit them with a guard.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from fsm_agent import Agent, CallResult, Dialog, function
from fsm_agent.flows import Flow, FlowSuspended, ask, end, into, wait
from fsm_agent.testing import Script, function_call


class Name(Enum):
    ALICE = "alice"
    BOB = "bob"


@dataclass(frozen=True)
class Handover:
    """Pass the user on to another agent, who reads the whole dialog."""

    to: Name


@dataclass(frozen=True)
class Reply:
    """A reply to the user."""

    text: str


@dataclass(frozen=True)
class Chat:
    said: str
    active: Name = Name.ALICE
    dialog: Dialog = field(default_factory=Dialog)
    reply: str = ""


@function
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


AGENTS = {
    Name.ALICE: Agent("openai:gpt-5", name="alice", functions=[add], system="You add numbers."),
    Name.BOB: Agent("openai:gpt-5", name="bob", system="You speak like a pirate."),
}


def active_agent(c: Chat) -> Agent[Any, Any]:
    return AGENTS[c.active]


@ask(active_agent, Reply, Handover, whole=True)
def speaking(c: Chat) -> Dialog:
    return c.dialog.put(c.said)


@wait(str)
def user(c: Chat) -> str:
    return c.reply


def is_bye(c: Chat, said: str) -> bool:
    return said == "bye"


def keep_reply(c: Chat, r: CallResult[Reply]) -> Chat:
    return replace(c, dialog=r.dialog, reply=r.output.text)


def hand_over(c: Chat, r: CallResult[Handover]) -> Chat:
    return replace(c, dialog=r.dialog, active=r.output.to, said=f"(handed over to {r.output.to.value})")


swarm = Flow(
    "swarm",
    Chat,
    start=speaking,
    rows=[
        speaking.done(user, of=Reply, do=keep_reply),
        speaking.done(speaking, of=Handover, do=hand_over),
        user.done(end("over"), when=is_bye),
        user.done(speaking, do=into("said")),
    ],
)


def main() -> None:
    said = iter(["What is 5 + 7?", "bye"])
    model = Script(
        '{"to": "bob"}', '{"text": "Arr!"}', '{"to": "alice"}', function_call("add", a=5, b=7), '{"text": "12"}'
    )
    run = swarm.prepare(Chat("May I speak to Bob?"), clients={speaking: model})
    while True:
        try:
            print(swarm.run(run).state)
            return
        except FlowSuspended as waiting:
            print(f"{waiting.run.data.active.value}: {waiting.run.data.reply}")
            run.give(user, next(said))


if __name__ == "__main__":
    main()
