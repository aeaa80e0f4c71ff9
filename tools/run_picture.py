"""Draw the README's picture of a run, ``diagrams/a_run.svg``, from its trace.

PYTHONPATH=tests python tools/run_picture.py
"""

from __future__ import annotations

from support.paths import ROOT

from fsm_agent import Agent, RateLimited, Reply, Usage, function
from fsm_agent.diagrams import Diagram, trace_diagram, write
from fsm_agent.messages import FunctionCall, Message
from fsm_agent.testing import Delayed, Script, function_call


@function
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def run_picture() -> Diagram:
    model = Script(
        RateLimited("slow down", retry_after_s=7),
        _late(0.9, function_call("add", a=17, b=25), Usage(input_tokens=85, output_tokens=18)),
        _late(0.6, "forty-two", Usage(input_tokens=112, output_tokens=4)),
        _late(0.5, "42", Usage(input_tokens=171, output_tokens=2)),
    )
    result = Agent(model, functions=[add], output=int).call("What is 17 + 25?")
    model.assert_exhausted()
    return trace_diagram(result.trace)


def _late(delay_s: float, content: str | FunctionCall, usage: Usage) -> Delayed:
    return Delayed(delay_s, Reply(message=Message.of("assistant", content), usage=usage))


if __name__ == "__main__":
    print(write(run_picture(), ROOT / "diagrams" / "a_run.svg"))
