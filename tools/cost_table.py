"""The table of what a call costs beside other libraries, in docs/cost.md: ``python tools/cost_table.py`` prints it.

The figures are those of one benchmark: the same work, done by each library as its documentation recommends, each in a
process and an environment of its own, their batches taking turns, every answer and every function call checked.  What
the others take was measured on 2026-11-21, with the versions in `PEERS`; ours, and by hand again in the same run, on
2026-11-26, of streams and of the import on 2026-11-22, over HTTP on 2026-11-29.  So a cell is the ratio to the work by
hand in the same run.

A row without a figure of ours is not in the table; ``ours=(ours, by hand)`` puts it there.
"""

from __future__ import annotations

from dataclasses import dataclass

PEERS = {
    "pydantic-ai": "pydantic-ai-slim 2.68.0",
    "langgraph": "langgraph 1.2.22, langchain 1.4.7",
    "openai-agents": "openai-agents 0.24.0",
    "smolagents": "smolagents 1.26.0",
    "burr": "apache-burr 0.43.0",
    "lllm": "lllm-core 0.2.1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One piece of work; times in one unit, that of its name."""

    work: str
    peers: tuple[float, ...]  # in the order of `PEERS`
    by_hand: float  # in the run of the peers
    ours: tuple[float, float] | None  # ours, and by hand in the same run
    source: tuple[str, str]  # where the benchmark's own tables have it: which, and in which column
    aim: float | None = None  # the ratio that we want to stay under
    is_ratio: bool = True  # False: a cell is the figure itself


ROWS = (
    Row(
        work="one turn, µs",
        source=("W1", "CPU us/call"),
        peers=(1872, 842, 867, 2279, 215, 83.2),
        by_hand=2.76,
        ours=(82.3, 2.6),
        aim=10,
    ),
    Row(
        work="three rounds of a function, µs",
        source=("W2", "CPU us/call"),
        peers=(6722, 4866, 4837, 2869, 862, 1057),
        by_hand=16.9,
        ours=(370.2, 16.4),
        aim=6,
    ),
    Row(
        work="16 functions at once, µs",
        source=("W3", "CPU us/call"),
        peers=(5500, 10480, 10033, 7247, 744, 3275),
        by_hand=112,
        ours=(582.3, 108.6),
        aim=3,
    ),
    Row(
        work="200 rounds, ms",
        source=("W4", "CPU ms, 200 rounds"),
        peers=(951, 314, 1766, 130, 307, 1077),
        by_hand=0.98,
        ours=(20.1, 0.97),
        aim=8,
    ),
    Row(
        work="growth from 100 to 400 rounds: n to the",
        source=("W4", "exponent"),
        peers=(1.74, 1.17, 1.88, 2.30, 1.94, 2.22),
        by_hand=1.02,
        ours=(0.99, 1.03),
        is_ratio=False,
    ),
    Row(
        work="peak heap of 400 rounds, KiB",
        source=("W4", "peak KiB, 400"),
        peers=(1202, 1671, 2770, 77906, 860, 373655),
        by_hand=214,
        ours=(524, 214),
        is_ratio=False,
    ),
    Row(
        work="typed output, µs",
        source=("W9 clean", "CPU us/call"),
        peers=(2469, 1072, 2429, 2335, 240, 369),
        by_hand=22.5,
        ours=(109.3, 21.7),
        aim=3,
    ),
    Row(
        work="typed output after one retry, µs",
        source=("W9 retry", "CPU us/call"),
        peers=(4122, 1778, 4842, 2684, 356, 542),
        by_hand=44.4,
        ours=(212.1, 43.8),
        aim=3,
    ),
    # Over HTTP, to a server on this machine; by hand: httpx, of 500 at once over aiohttp.
    Row(
        work="200 rounds over HTTP, µs",
        source=("W4h", "CPU us/call"),
        peers=(9243001, 8442366, 9908523, 11185359, 8000285, 11091724),
        by_hand=203470,
        ours=(151246, 167677),
        aim=1.3,
    ),
    Row(
        work="three rounds over HTTP, µs",
        source=("W5", "CPU us/call"),
        peers=(19460, 16722, 16230, 13497, 9903, 21865),
        by_hand=2944,
        ours=(1595, 1449),
        aim=1.2,
    ),
    Row(
        work="500 of these at once, s",
        source=("W6", "CPU s (warm)"),
        peers=(15.12, 11.74, 15.49, 10.44, 8.55, 14.24),
        by_hand=0.51,
        ours=(1.32, 0.66),
    ),
    Row(
        work="a delta of a stream, µs",
        source=("W7", "burst CPU us/delta"),
        peers=(223, 220, 135, 432, 103, 667),
        by_hand=14.6,
        ours=(10.2, 18.1),
        aim=1.3,
    ),
    Row(
        work="import, ms",
        source=("W8", "import ms (min)"),
        peers=(742, 1022, 1154, 551, 373, 1932),
        by_hand=65.3,
        ours=(74.1, 92.5),
        aim=1.5,
    ),
)


def cells(row: Row) -> tuple[str, ...]:
    assert row.ours is not None
    ours, by_hand = row.ours
    if not row.is_ratio:
        return (row.work, _digits(by_hand), _digits(ours), "", *map(_digits, row.peers))
    aim = f"{row.aim:g}" if row.aim else ""
    return (
        row.work,
        _digits(by_hand),
        _digits(ours / by_hand),
        aim,
        *[_digits(one / row.by_hand) for one in row.peers],
    )


def table() -> str:
    head = ("", "by hand", "**fsm_agent**", "aim", *PEERS)
    rows = [head, ("---", *["---:"] * (len(head) - 1)), *[cells(row) for row in ROWS if row.ours]]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    print(table(), end="")
