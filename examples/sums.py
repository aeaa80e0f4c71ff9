"""A model that calls a function: python examples/sums.py "What is 17 + 25?" [provider:model]

By default, the model is the small embedded one, which needs no key.
"""

import sys

from fsm_agent import Agent, Settings, function


@function
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def main(question: str = "What is 17 + 25?", model: str = "local:") -> None:
    settings = Settings(temperature=0, seed=1, max_tokens=48) if model == "local:" else Settings()
    with Agent(model, functions=[add], settings=settings) as agent:
        result = agent.call(question)
    for asked in result.function_calls:
        print(f"{asked.name}({asked.arguments}) = {asked.result}")
    print(result.output)
    print(" -> ".join(["Seeded", *(str(step.to) for step in result.trace)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
