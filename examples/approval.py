"""A function that waits for a person, in two processes: python examples/approval.py ask, then … approve (or deny)

The first process ends while the call waits, and leaves only the file call.json.  A script stands in for the model, so
this needs neither a key nor a network.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from fsm_agent import Agent, Approved, CallSuspended, Denied, Limits, function
from fsm_agent.call import AskApproval, Request, snapshot
from fsm_agent.messages import FunctionResult
from fsm_agent.testing import Script, ScriptEntry, function_call

FILE = Path("call.json")


@function(needs_approval=True)
def refund(order: str, amount_eur: float) -> str:
    """Pay a customer back."""
    return f"{amount_eur:.2f} EUR for {order} are on their way"


def agent(*replies: ScriptEntry) -> Agent:
    return Agent(Script(*replies), functions=[refund], limits=Limits(rounds=3, recalls=1))


def ask() -> None:
    try:
        agent(function_call("refund", order="A-17", amount_eur=25)).call("Refund order A-17, please.")
    except CallSuspended as suspended:
        FILE.write_text(snapshot(suspended.call))
        print(f"suspended: {suspended}")


def answer(request: Request) -> str:
    told = [part.text for part in request.messages[-1].parts if isinstance(part, FunctionResult)]
    return f"I was told: {told[0]}."


def resume(verdict: Approved | Denied) -> None:
    answering = agent(answer)
    waiting = answering.restore(FILE.read_text())
    for effect in waiting.effects:
        if isinstance(effect, AskApproval):
            print(f"{effect.call.name}({effect.call.arguments_json}): {verdict.kind}")
            waiting.advance(effect.key, verdict)
    result = answering.run(waiting)
    FILE.write_text(snapshot(waiting))  # to resume it once more pays nothing: it has ended
    print(result.output)
    print(" -> ".join(["Seeded", *(str(step.to) for step in result.trace)]))


if __name__ == "__main__":
    steps: dict[str, Callable[[], None]] = {
        "ask": ask,
        "approve": lambda: resume(Approved()),
        "deny": lambda: resume(Denied("not before Monday")),
    }
    if len(sys.argv) != 2 or sys.argv[1] not in steps:
        sys.exit(__doc__)
    steps[sys.argv[1]]()
