"""The command ``fsm-agent diagram``, and options shared by the commands that draw."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fsm_agent.cli.terminal import Screen
from fsm_agent.diagrams.drawing import Diagram, Format, render, write
from fsm_agent.diagrams.machine_diagrams import Level, call_diagram

AtLevel = Annotated[
    Level | None,
    typer.Option("--level", help="How much to draw; by default, all rows, or an overview if there are 30 or more."),
]
AsFormat = Annotated[
    Format | None, typer.Option("--format", help="The format; by default, the suffix of --output, or mermaid.")
]
Output = Annotated[Path | None, typer.Option("--output", help="The file to write; by default, stdout.")]


def draw(diagram: Diagram, format: Format | None, output: Path | None) -> None:
    """Write a diagram to a file or to stdout."""
    if output is not None:
        path = write(diagram, output, format)
        Screen().tell(f"diagram written to {path}")
        return
    if format == "png" and sys.stdout.isatty():
        raise typer.BadParameter("expected a file for png, got the terminal; pass --output FILE", param_hint="--format")
    typer.echo(render(diagram, format or "mermaid"), nl=False)


def diagram(level: AtLevel = None, format: AsFormat = None, output: Output = None) -> None:
    """Draw the states of an agent call."""
    draw(call_diagram(level=level), format, output)
