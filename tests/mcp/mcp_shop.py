"""A server of functions, an agent and a flow: ``python mcp_shop.py STORE FILE [http]``; FILE gets what was done."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fsm_agent import Agent, Context, Document, Function, Image, function
from fsm_agent.flows import Flow, end, wait
from fsm_agent.mcp import ToolServer, serve
from fsm_agent.testing import Script, function_call

KEY = "k" * 32
ANSWERED = "this question was answered before, or its call has ended"
SECRET = "sk-recognisable0123456789"
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


@dataclass(frozen=True)
class Letter:
    about: str
    is_fit: bool = False


@wait(bool)
def review(letter: Letter) -> str:
    return f"Is the letter about {letter.about} fit to send?"


def judged(letter: Letter, is_fit: bool) -> Letter:
    return replace(letter, is_fit=is_fit)


LETTERS = Flow("letters", Letter, start=review, rows=[review.done(end("over"), do=judged)])


@function
async def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@function
async def count(context: Context[None], to: int) -> str:
    """Count, and say so."""
    for number in range(to):
        context.emit(f"{number + 1} of {to}")
        await asyncio.sleep(0)
    return "counted"


@function
def bad() -> str:
    """Fail."""
    raise KeyError(f"no such thing, {SECRET}")


@function(on_error="fail")
def worse() -> str:
    """Fail for good."""
    raise KeyError(f"no such thing, {SECRET}")


@function
def pictures() -> list[Any]:
    """A picture, a table and a bill."""
    return ["see", Image.of(DOT), Document.of(b"a,b", name="t.csv"), Document.of(b"%PDF-1.7", name="my bill.pdf")]


weather = Function(name="weather", description="The weather, as a person sees it.")


class Shop:
    """Functions that must be done once, and what they did."""

    def __init__(self, notes: Path | None = None) -> None:
        self.notes = notes
        self.done: list[str] = []
        self.begun, self.left = asyncio.Event(), False

    def note(self, what: str) -> None:
        self.done.append(what)
        if self.notes is not None:
            with self.notes.open("a") as file:
                file.write(f"{what}\n")

    @property
    def functions(self) -> list[Any]:
        """Those that need a store."""

        @function(needs_approval=True)
        def refund(order: str) -> str:
            """Refund an order."""
            self.note(f"refund {order}")
            return f"refunded {order}"

        @function(once=True)
        def pay(order: str) -> str:
            """Pay, once."""
            self.note(f"pay {order}")
            return f"paid {order}"

        @function(once=True, needs_approval=True)
        def die(order: str) -> str:
            """End the process in the middle."""
            self.note(f"die {order}")
            os._exit(9)

        @function
        async def hang() -> str:
            """Wait forever."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.left = True
            return "never"

        desk = Agent(Script(*[desk_model] * 100), functions=[refund], name="desk")
        return [refund, pay, die, hang, desk.as_function(description="The customers' desk.")]

    def server(self, store: Any, **options: Any) -> ToolServer:
        open_to_all = [add, count, bad, worse, pictures, weather, LETTERS]
        return serve("shop", [*open_to_all, *self.functions], store=store, signing_key=KEY, **options)


def desk_model(request: Any) -> Any:
    last = request.messages[-1]
    return function_call("refund", order=last.text) if last.role == "user" else f"The money: {last.text}"


def main(store: str, notes: str, *kind: str) -> None:
    server = Shop(Path(notes)).server(store)
    if kind:
        server.run_http(port=0, ready=lambda url: print(url, flush=True))
    else:
        server.run_stdio()


if __name__ == "__main__":
    main(*sys.argv[1:])
