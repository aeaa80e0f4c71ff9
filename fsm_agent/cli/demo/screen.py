"""Show the demo, to people and to programs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from pydantic_core import to_jsonable_python
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fsm_agent.cli.demo.demo import DIAGRAM_STEM, Classified, can_draw, diagram_of, write_diagrams
from fsm_agent.cli.demo.items import DemoItem, Finding, PartStarted, Remark
from fsm_agent.cli.render import json_text
from fsm_agent.cli.terminal import TABLE_WIDTH, Screen, folded, one_line, shown_function, shown_step
from fsm_agent.clients.local.model import SMOLLM2
from fsm_agent.diagrams.drawing import write
from fsm_agent.messages.events import FunctionEnded, FunctionStarted, ReplyCompleted, Stepped, Suspended, TextDelta

INDENT = "   "
WIDTH = 90  # of prose, at most
EMBEDDED = (
    "It runs on this machine, on one thread. With 135 million parameters it is very small: it can do what you see"
    " here and little else. --model runs the demo with another model."
)


class DemoScreen:
    """The output of the demo as it is played: on stdout for people, or on stderr next to JSON."""

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
            self._prose(EMBEDDED, "dim", indent="")

    def show(self, item: DemoItem) -> None:
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
        self._screen.prose(f"{self._scenes}  {scene.title}", "bold", hang=INDENT)
        self._prose(scene.about, "dim")
        for n, line in enumerate(scene.request.splitlines()):
            self._line(line if n else f"asked: {line}")

    def _say(self, remark: Remark) -> None:
        text = one_line(remark.text)
        if self._as_json:
            self._screen.tell(f"| {text}" if remark.is_quoted else text)
        elif remark.is_quoted:
            self._line(text, "cyan", indent=f"{INDENT}| ")
        else:
            self._prose(text)

    def _tell(self, item: DemoItem) -> None:
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
                self._line(shown_step(item), "cyan")
            case FunctionStarted() | FunctionEnded():
                self._line(f"function: {shown_function(item)}", "yellow")
            case Suspended():
                self._line(f"suspended: it waits for {', '.join(map(repr, item.keys))}", "cyan")

    def _end(self, finding: Finding) -> None:
        if self._as_json:
            return
        if not self._shows_steps:
            for label in finding.output or ():
                self._line(f"{label.label} ({label.probability:.2f}): {label.text}", "green")
        if finding.note:
            self._line(one_line(finding.note), "dim")
        if finding.problem:
            self._line(f"not as it should be: {one_line(finding.problem)}", "bold red")

    def finish(self, model: str, findings: Sequence[Finding], output: Path | None) -> None:
        """Sum up, and draw the calls.

        Args:
            model: The model's name.
            findings: Those of all parts.
            output: Where the diagram goes: see `write_diagrams`.  None: beside JSON there is none; else it is a
                temporary file, without `dot` in Mermaid.

        Raises:
            UsageError: A file cannot be written.
            ConfigError: `dot` is needed, and is not installed.
        """
        screen, diagram = self._screen, diagram_of(findings)
        paths = [] if output is None else write_diagrams(diagram, output)
        if self._as_json:
            screen.line(json_text(report(model, findings, paths)))
            return
        screen.line()
        screen.show(summary(findings, self._screen.columns))
        screen.line()
        for path in paths:
            screen.line(f"diagram written to {path}")
        if output is not None:
            return
        suffix, how = (".svg", "drawn") if can_draw() else (".mmd", "in Mermaid, which https://mermaid.live draws")
        descriptor, name = tempfile.mkstemp(prefix=f"{DIAGRAM_STEM}-", suffix=suffix)
        os.close(descriptor)
        about = f"The states that these calls went through, {how} (--output writes the picture elsewhere):"
        self._prose(about, indent="")
        screen.line(str(write(diagram, name)))

    def _prose(self, text: str, style: str = "", *, indent: str = INDENT) -> None:
        """Write a paragraph."""
        self._screen.prose(text, style, indent=indent, hang=indent, at_most=WIDTH)

    def _line(self, text: str, style: str = "", *, indent: str = INDENT) -> None:
        """Write a line, wrapped only at the width of the terminal."""
        self._screen.prose(text, style, indent=indent, hang=f"{indent}  ")


def summary(findings: Sequence[Finding], width: int | None = None) -> RenderableType:
    """Return the findings as a table; on a terminal that is too narrow for one, as a list."""
    title = "Results"
    if width is None or width >= TABLE_WIDTH:
        return _table(title, findings)
    return Group(Text(title, "italic"), *[line for finding in findings for line in _lines(finding, width)])


def _lines(finding: Finding, width: int) -> Iterator[Text]:
    rounds, tokens, time = _figures(finding)
    yield Text(folded(f"{finding.title}: ", width, "", INDENT)).append_text(_verdict(finding))
    if finding.output is not None:
        yield Text(folded(_output(finding), width, INDENT, INDENT))
    yield Text(f"{INDENT}rounds: {rounds}, tokens: {tokens}, {time}", "dim")


def _figures(finding: Finding) -> tuple[str, str, str]:
    """Return rounds, tokens and time."""
    return str(finding.rounds), f"{finding.usage.total_tokens:,}", f"{finding.duration_s:.1f} s"


def _verdict(finding: Finding) -> Text:
    if finding.problem:
        return Text("failed", "bold red")
    return Text("left out" if finding.output is None else "ok", "green")


def _table(title: str, findings: Sequence[Finding]) -> Table:
    drawn = Table(title=title, title_justify="left")
    for heading in ("part", "output"):
        drawn.add_column(heading, overflow="fold")
    for heading in ("rounds", "tokens", "time"):
        drawn.add_column(heading, justify="right", no_wrap=True, min_width=len("99.9 s"))
    drawn.add_column("", no_wrap=True)
    for finding in findings:
        drawn.add_row(Text(finding.title), Text(_output(finding)), *_figures(finding), _verdict(finding))
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
