"""Show the costs of a call, to people and to programs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.costs import (
    LONG,
    SIZES,
    Cost,
    RequestTiming,
    Spread,
    Waiting,
    exponent,
    machine,
    measure,
    measure_imports,
    measure_waiting,
)
from benchmarks.works import long_work, works

Units: TypeAlias = Sequence[tuple[str, float]]
TIME: Units = ((" s", 1.0), (" ms", 1e-3), (" µs", 1e-6))
SIZE: Units = ((" KiB", 1024.0),)
NUMBER: Units = (("", 1.0),)
IMPORT_RUNS = 3  # at most: each takes two processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The measurements of one run."""

    machine: Mapping[str, str]
    runs: int
    costs: Sequence[Cost]  # of the short works
    growth: Sequence[Cost]  # of the long ones, in the order of `SIZES`
    waiting: Waiting
    importing: Cost
    model: str = ""  # of the requests, if there were any
    timings: Sequence[RequestTiming] = ()

    @property
    def exponents(self) -> tuple[float, float]:
        """The exponents of growth, of ours and of the loop by hand."""
        ours = [statistics.median(cost.ours_s) for cost in self.growth]
        by_hand = [statistics.median(cost.by_hand_s) for cost in self.growth]
        return exponent(SIZES, ours), exponent(SIZES, by_hand)


def measured(runs: int, *, model: str = "", timings: Sequence[RequestTiming] = ()) -> Report:
    """Measure everything that needs no model.

    Args:
        runs: How many batches of each.
        model: The model of the requests, if there were any.
        timings: Their costs.
    """
    return Report(
        machine=machine(),
        runs=runs,
        costs=measure([*works().values()], runs=runs),
        growth=measure([long_work(rounds) for rounds in SIZES], runs=max(1, runs // 2)),
        waiting=measure_waiting(),
        importing=measure_imports(min(runs, IMPORT_RUNS)),
        model=model,
        timings=timings,
    )


def picture(report: Report) -> RenderableType:
    """Return the report for people."""
    machine = report.machine
    where = " · ".join([machine["machine"], machine["system"], machine["python"], machine["at"]])
    made_with = " · ".join(
        [f"{name} {machine[name]}" for name in machine if name not in ("machine", "system", "python", "at")]
    )
    head = Text(f"{where}\n{made_with}\n")
    return Group(head, _table(report), *([_request_table(report)] if report.timings else ()))


def _table(report: Report) -> Table:
    drawn = _blank("What a call costs", "work", "fsm_agent", "by hand", "ratio")
    for cost in (*report.costs, report.growth[SIZES.index(LONG)], report.importing):
        by_hand = _summary([statistics.median(cost.by_hand_s)], TIME)
        drawn.add_row(cost.name, _summary(cost.ours_s, TIME), by_hand, _summary(cost.ratios))
    ours, hand = report.exponents
    drawn.add_row(f"{SIZES[0]} to {SIZES[-1]} rounds", f"n^{ours:.2f}", f"n^{hand:.2f}", "")
    held = report.waiting
    ratio = _summary([held.ours / held.by_hand])
    drawn.add_row("a call that waits", _summary([held.ours], SIZE), _summary([held.by_hand], SIZE), ratio)
    drawn.add_row("its snapshot", _summary([held.snapshot], SIZE), "", "")
    drawn.caption = (
        f"Processor time (of an import, time): the median of {report.runs} batches and its quartiles. By hand: the same"
        " work in a loop over dicts and JSON, in batches that take turns with the others. The model is in this process"
        " and takes no time."
    )
    return drawn


def _request_table(report: Report) -> Table:
    drawn = _blank(f"Requests to {report.model}", "", f"of {len(report.timings)}")
    if first := [one.first_delta_s for one in report.timings if one.first_delta_s is not None]:
        drawn.add_row("time to first delta", _summary(first, TIME))
    drawn.add_row("time of a request", _summary([one.took_s for one in report.timings], TIME))
    drawn.add_row("output tokens", _summary([one.output_tokens for one in report.timings]))
    drawn.add_row("output tokens per second", _summary([one.tokens_per_s for one in report.timings]))
    return drawn


def _blank(title: str, *headings: str) -> Table:
    drawn = Table(title=title, title_justify="left", caption_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(headings):
        drawn.add_column(heading, no_wrap=True, justify="right" if index else "left")
    return drawn


def as_json(report: Report) -> dict[str, Any]:
    """Return the report for programs: every sample, in seconds and bytes."""
    ours, by_hand = report.exponents
    return {**asdict(report), "exponent": {"ours": ours, "by_hand": by_hand}}


def _summary(samples: Sequence[float], units: Units = NUMBER) -> str:
    """Return the median, and of several samples the quartiles, in the unit that suits it."""
    spread = Spread.of(samples)
    unit, scale = next(((unit, scale) for unit, scale in units if spread.median >= scale), units[-1])
    quartiles = f" ({_digits(spread.lower / scale)}-{_digits(spread.upper / scale)})" if len(samples) > 1 else ""
    return f"{_digits(spread.median / scale)}{unit}{quartiles}"


def _digits(value: float) -> str:
    """Return three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
