"""What spans cost: ``python benchmarks/tracing_costs.py [ROUNDS]`` prints it, as ratios in one run.

The work is that of W2: three rounds of a function, then the answer.  Four ways of doing it take turns:

off         nothing is installed
interface   ``instrument()`` without an SDK, as in a library whose user records nothing: what this package itself does
recorded    with an SDK that keeps each span for a moment, and no metrics
by hand     off, and beside it the same eight spans with the same attributes, as one writes them with the SDK

So ``recorded - by hand`` is what this package adds to what the SDK takes for the same spans.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from benchmarks.works import works
from fsm_agent.runtime import instrument

BATCH = 40


class Kept(SpanProcessor):
    """Keeps the spans of one call."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


BEGIN_WITH = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.tool.name")


def by_hand(tracer: trace.Tracer, spans: list[ReadableSpan]) -> None:
    """Make the same spans, the last one around the others, as one would write it around requests and functions."""
    *inside, root = spans
    with tracer.start_as_current_span(root.name, kind=root.kind, attributes=_split(root)[0]) as outer:
        for span in inside:
            begun, ended = _split(span)
            with tracer.start_as_current_span(span.name, kind=span.kind, attributes=begun) as one:
                one.set_attributes(ended)
        outer.set_attributes(_split(root)[1])


@cache
def _split(span: ReadableSpan) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes that are known when a span begins, and the others."""
    known = dict(span.attributes or {})
    begun = {name: known.pop(name) for name in BEGIN_WITH if name in known}
    return begun, known


async def took_s(once: Callable[[], Awaitable[Any]], recording: AbstractContextManager[Any]) -> float:
    gc.collect()
    with recording:
        await once()
        start_s = time.process_time()
        for _ in range(BATCH):
            await once()
        return (time.process_time() - start_s) / BATCH


async def measured(rounds: int) -> dict[str, float]:
    """Return the least time of each way, in seconds."""
    work = works()["three rounds"].ours
    kept = Kept()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(kept)
    meters = NoOpMeterProvider()

    def recording() -> AbstractContextManager[Any]:
        return instrument(tracer_provider=provider, meter_provider=meters)

    with recording():
        await work()
    spans, tracer = list(kept.spans), provider.get_tracer("by hand")
    assert len(spans) == 8, [span.name for span in spans]

    async def with_spans() -> None:
        await work()
        by_hand(tracer, spans)
        kept.spans.clear()

    async def recorded() -> None:
        await work()
        kept.spans.clear()

    ways: dict[str, tuple[Callable[[], Awaitable[Any]], Callable[[], AbstractContextManager[Any]]]] = {
        "off": (work, nullcontext),
        "interface": (work, lambda: instrument(meter_provider=meters)),
        "recorded": (recorded, recording),
        "by hand": (with_spans, nullcontext),
    }
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, (once, around) in ways.items():
            least[name] = min(least[name], await took_s(once, around()))
    return least


def main(rounds: int = 15) -> None:
    """Print the table."""
    least = asyncio.run(measured(rounds))
    for name, seconds in least.items():
        print(f"{name:<10} {seconds * 1e6:7.1f} us  {seconds / least['off']:5.2f}")
    own = (least["recorded"] - least["by hand"]) / least["off"]
    print(f"of recorded, this package's own: {own:.1%} of off")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
