"""A model that calls a function: python examples/sums.py "What is 17 + 25?" [provider:model]

Without a model it is the small embedded one, which needs no key.  That one has to be shown first how it goes; for
a larger model, `agent.call(question)` is enough.
"""

import sys

from fsm_agent import Agent, Dialog, Settings, function
from fsm_agent.testing import Script, call


@function
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def worked_turns() -> Dialog:
    """A dialog of two sums as they should go: a script stands in for the model, the function is really called."""
    script = Script(
        *(call("add", a=40, b=3), "The answer is 43."),
        *(call("add", a=310, b=75), "The answer is 385."),
    )
    teacher = Agent(script, system="You are a helpful assistant.", functions=[add])
    first = teacher.call("What is 40 + 3?")
    return teacher.call(first.dialog.put("Add 310 and 75.")).dialog


def main(question: str = "What is 17 + 25?", model: str = "local:") -> None:
    settings = Settings(temperature=0, seed=1, max_tokens=48) if model == "local:" else Settings()
    with Agent(model, functions=[add], settings=settings) as agent:
        result = agent.call(worked_turns().put(question))
    for asked in result.function_calls:
        print(f"{asked.name}({asked.arguments}) = {asked.result}")
    print(result.output)
    print(" -> ".join(["Seeded", *(str(step.to) for step in result.trace)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
