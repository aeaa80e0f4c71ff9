"""An agent with a `TerminalHook` and an agent inside, as a program for a terminal."""

from __future__ import annotations

from fsm_agent import Agent, Reply
from fsm_agent.cli import TerminalHook
from fsm_agent.messages import Message, Usage
from fsm_agent.testing import Script, function_call


def measure(city: str) -> float:
    """Measure the temperature of a city."""
    if city == "Atlantis":
        raise ValueError("it has sunk")
    return 11.5


def said(text: str, tokens: int) -> Reply:
    return Reply(message=Message.of("assistant", text), usage=Usage(input_tokens=tokens, output_tokens=tokens // 10))


weather = Agent(
    Script(
        function_call("measure", city="Berlin"), function_call("measure", city="Atlantis"), said("It is mild.", 1_200)
    ),
    name="weather",
    system="You tell the weather.",
    functions=[measure],
)
guide = Agent(
    Script(function_call("ask_weather", task="Berlin?"), said("[b]Take a coat.", 300)),
    functions=[weather.as_function("ask_weather", "Ask for the weather.")],
    hooks=[TerminalHook()],
)

if __name__ == "__main__":
    guide.call("What do I wear?")
