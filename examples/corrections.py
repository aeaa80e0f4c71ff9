"""Prompts in a folder that tell a model what was wrong with its answer, and what a function has returned.

Run it with ``python examples/corrections.py``.  A script stands in for the model, so this needs neither a key nor a
network.  Next to ``prompts/orders/read.md``, there are ``read.exception.md``, for answers that are not valid, and
``read.interrupt.md``, for the results of functions.
"""

from pathlib import Path

from pydantic import BaseModel, Field

from fsm_agent import Agent, Prompts
from fsm_agent.testing import Script, function_call


class Order(BaseModel):
    item: str
    count: int = Field(le=3)


def stock(item: str) -> int:
    """Return how many of an item are in stock."""
    return 3


prompts = Prompts("orders", directory=Path(__file__).with_name("prompts"), names={"Order": Order, "stock": stock})


def main() -> None:
    model = Script(
        function_call("stock", item="lamp"),
        '{"item": "lamp", "count": 5}',
        '{"item": "lamp", "count": 3}',
    )
    result = Agent(model, name="clerk").call(prompts("read")(letter="Five lamps, please, or what you have."))
    for request in model.requests[1:]:
        newest = request.messages[-1]
        print(f"{newest.role} is told:")
        print(f"    {newest.text}".replace("\n", "\n    "))
    print(result.output)


if __name__ == "__main__":
    main()
