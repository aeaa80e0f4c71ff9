"""Show the demo, to people and to programs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from pydantic_core import to_jsonable_python
from rich.table import Table
from rich.text import Text

from fsm_agent.cli.demo.demo import Classified
from fsm_agent.cli.demo.items import Finding, Item, PartStarted, Remark
from fsm_agent.cli.terminal import Screen, one_line, shown_function, shown_step
from fsm_agent.clients.local.model import SMOLLM2
from fsm_agent.messages.event import FunctionEnded, FunctionStarted, ReplyCompleted, Stepped, Suspended, TextDelta

INDENT = "   "
WIDTH = 90
EMBEDDED = (
    "It runs on this machine, on one thread. With 135 million parameters it is very small: it does what is shown here"
    " and little else. --model shows the same with any other."
)


class DemoScreen:
    """The output of the demo as it is played: on stdout for people, or on stderr beside JSON."""

    def __init__(self, screen: Screen, *, as_json: bool = False) -> None:
        self._screen = screen
        self._as_json = as_json
        self._scenes = 0
        self._shows_steps = True
        self._is_speaking = False

    def introduce(self, model: str) -> None:
        """Introduce the model, and what can be expected of it."""
        if self._as_json:
            return
        self._screen.line(f"The model is {model}.", "bold")
        if model == SMOLLM2.name:
            self._screen.line(textwrap.fill(EMBEDDED, WIDTH), "dim")

    def show(self, item: Item) -> None:
        """Show the next item of `Demo.play`."""
        match item:
            case PartStarted():
                self._begin(item)
            case Finding():
                self._end(item)
            case Remark():
                self._say(item)
            case _ if self._as_json:
                self._screen.take(item)
            case _:
                self._screen.standing.take(item)
                if self._shows_steps:
                    self._tell(item)
        self._screen.resume()

    def _begin(self, scene: PartStarted) -> None:
        self._scenes += 1
        if self._as_json:
            self._screen.tell(f"{self._scenes}  {scene.title}")
            return
        self._shows_steps = scene.shows_steps
        self._screen.line()
        self._screen.line(f"{self._scenes}  {scene.title}", "bold")
        self._screen.line(_indented(textwrap.fill(scene.about, WIDTH)), "dim")
        self._screen.line(_indented(f"asked: {scene.request}"))

    def _say(self, remark: Remark) -> None:
        text = one_line(remark.text)
        if self._as_json:
            self._screen.tell(f"| {text}" if remark.is_quoted else text)
        elif remark.is_quoted:
            self._screen.line(f"{INDENT}| {text}", "cyan")
        else:
            self._screen.line(_indented(textwrap.fill(text, WIDTH)))

    def _tell(self, item: Item) -> None:
        screen = self._screen
        match item:
            case TextDelta():
                lead = "" if self._is_speaking else f"{INDENT}model: "
                screen.write(lead + item.text.replace("\n", f"\n{INDENT}"), "green")
                self._is_speaking = True
            case ReplyCompleted():
                screen.end_line()
                self._is_speaking = False
            case Stepped():
                self._is_speaking = False  # even of a reply that broke off
                screen.line(f"{INDENT}{shown_step(item)}", "cyan")
            case FunctionStarted() | FunctionEnded():
                screen.line(f"{INDENT}function: {shown_function(item)}", "yellow")
            case Suspended():
                screen.line(f"{INDENT}suspended: it waits for {', '.join(map(repr, item.keys))}", "cyan")

    def _end(self, finding: Finding) -> None:
        screen = self._screen
        if self._as_json:
            return
        if not self._shows_steps:
            for label in finding.output or ():
                screen.line(f"{INDENT}{label.label} ({label.probability:.2f}): {label.text}", "green")
        if finding.note:
            screen.line(f"{INDENT}{one_line(finding.note)}", "dim")
        if finding.problem:
            screen.line(f"{INDENT}not as it should be: {one_line(finding.problem)}", "bold red")


def table(findings: Sequence[Finding]) -> Table:
    """Return a table of the findings."""
    drawn = Table(title="What came of it", title_justify="left")
    for heading in ("part", "output"):
        drawn.add_column(heading, overflow="fold")
    for heading in ("rounds", "tokens", "time"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    drawn.add_column("", no_wrap=True)
    for finding in findings:
        verdict = Text("left out" if finding.output is None else "ok", "green")
        if finding.problem:
            verdict = Text("failed", "bold red")
        drawn.add_row(
            Text(finding.title),
            Text(_output(finding)),
            str(finding.rounds),
            f"{finding.usage.total_tokens:,}",
            f"{finding.duration_s:.1f} s",
            verdict,
        )
    return drawn


def report(model: str, findings: Sequence[Finding], diagrams: Sequence[Path]) -> dict[str, Any]:
    """Return the report as JSON."""
    return {
        "model": model,
        "succeeded": not any(finding.problem for finding in findings),
        "parts": [_part(finding) for finding in findings],
        "diagrams": [str(path) for path in diagrams],
    }


def _part(finding: Finding) -> dict[str, Any]:
    calls = [one.record for one in finding.calls]
    return {
        "title": finding.title,
        "output": to_jsonable_python(finding.output, serialize_unknown=True),
        "problem": finding.problem or None,
        "note": finding.note or None,
        "states": [[str(step.to) for step in record.trace] for record in calls],
        "function_calls": [
            {"name": f.name, "arguments": f.arguments, "result": f.result, "error": f.error}
            for record in calls
            for f in record.function_calls
        ],
        "rounds": finding.rounds,
        "usage": to_builtins(finding.usage),
        "duration_s": round(finding.duration_s, 3),
    }


def _output(finding: Finding) -> str:
    if finding.output is None:
        return "-"
    if isinstance(finding.output, list) and all(isinstance(label, Classified) for label in finding.output):
        return f"{sum(label.is_right for label in finding.output)} of {len(finding.output)} labels right"
    return one_line(str(finding.output))


def _indented(text: str) -> str:
    return "\n".join(f"{INDENT}{line}" for line in text.splitlines())
