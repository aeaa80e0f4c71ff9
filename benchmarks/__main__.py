"""The commands ``python -m benchmarks`` and ``python -m benchmarks classify``, with ``PYTHONPATH=tests``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.classes import HOWS, Quality, classified, examples, qualities
from fsm_agent._internal.text import plain
from fsm_agent.cli.options import (
    EMBEDDED,
    EMBEDDED_SETTINGS,
    BaseUrl,
    Json,
    Many,
    Model,
    connected,
    is_embedded,
    settings_and_limits,
    settings_of,
)
from fsm_agent.cli.terminal import Screen, json_text

app = typer.Typer()

_NAMES = dict(zip(HOWS, ("before calibration", "by the prior"), strict=True))


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Ask this model, too, as provider:model.")] = None,
    base_url: BaseUrl = None,
    runs: Annotated[int, typer.Option(min=1, help="How many batches of each work are measured.")] = 15,
    requests: Annotated[int, typer.Option(min=1, help="How often --model is asked.")] = 5,
    json_file: Annotated[
        Path | None, typer.Option("--json", dir_okay=False, writable=True, help="Write all samples into this file.")
    ] = None,
) -> None:
    """Measure what a call costs on this machine, beside the same work by hand."""
    if context.invoked_subcommand:
        return
    if json_file is not None and not json_file.parent.is_dir():  # before ten seconds are spent
        raise typer.BadParameter(f"there is no folder {str(json_file.parent)!r}", param_hint="--json")
    from benchmarks import costs
    from benchmarks import screen as figures

    name, measurements = "", list[costs.RequestTiming]()
    if model is not None:
        with Screen() as screen, connected(model, base_url, screen) as (client, name):
            screen.status.state = f"asking {plain(name)}"
            options = EMBEDDED_SETTINGS if is_embedded(model, base_url) else {}
            measurements += costs.ask(client, settings_and_limits(options)[0], requests)
    typer.echo("measuring; this takes ten seconds", err=True)
    report = figures.measured(runs, model=name, timings=measurements)
    with Screen(quiet=True) as screen:
        screen.show(figures.picture(report))
    if json_file is not None:
        json_file.write_text(json_text(figures.as_json(report)))


@app.command()
def classify(
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    options: Annotated[Many, typer.Option("--set", help="A setting, as name=value. Repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Measure how well a model tells positive texts from negative ones, before and after calibration."""
    with Screen() as screen, connected(model, base_url, screen) as (client, name):
        items = examples()
        settings, _ = settings_of(model, base_url, options)
        found = []
        for one in classified(client, items, settings.changed(max_tokens=None)):
            found.append(one)
            screen.status.state = f"asking {plain(name)}: {len(found)} of {len(items)} texts"
        measured = qualities(found, items)
        if as_json:
            screen.line(json_text({"model": name, "texts": len(items), "qualities": [_plain(one) for one in measured]}))
        else:
            screen.show(picture(name, len(items), measured))


def _plain(quality: Quality) -> dict[str, object]:
    return {
        "calibrated_by": quality.calibrated_by,
        "accuracy": quality.accuracy,
        "brier": quality.brier,
        "reliability": [one._asdict() for one in quality.reliability],
    }


def picture(model: str, count: int, measured: list[Quality]) -> RenderableType:
    """Return the qualities as tables for people."""
    table = _blank("", "right", "Brier score")
    for one in measured:
        table.add_row(_NAMES[one.calibrated_by], f"{one.accuracy:.1%}", f"{one.brier:.3f}")
    bins = _blank("probability", *[_NAMES[one.calibrated_by] for one in measured])
    tables = [{row.above: f"{row.share_right:.0%} of {row.texts}" for row in one.reliability} for one in measured]
    for above in sorted(set[float]().union(*tables)):
        bins.add_row(f"from {above:.0%}", *[shown.get(above, "") for shown in tables])
    head = (
        f"{count} texts, positive or negative, by {plain(model)}. A calibration is judged by the half of them that it"
    )
    return Group(
        Text(f"{head} was not made from."),
        table,
        Text("How often the label is right, by the probability that it was given:"),
        bins,
    )


def _blank(*headings: str) -> Table:
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(headings):
        drawn.add_column(heading, no_wrap=True, justify="right" if index else "left")
    return drawn


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
