"""Open the store that a command names, and find the turns of a conversation."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import FunctionType
from typing import Annotated

import typer

from fsm_agent.agents.config import loaded
from fsm_agent.cli.options import modules_here
from fsm_agent.errors import UsageError
from fsm_agent.store.listing import wanted
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Page, RunFilter
from fsm_agent.store.turns import turns_back

_NAMED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
KEY_VARIABLE = "FSM_AGENT_SIGNING_KEY"  # on a command line others would see it

StorePath = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="FSM_AGENT_STORE",
        help="A file, postgresql://host/database, or module:name.",
    ),
]


RunName = Annotated[str, typer.Argument(metavar="RUN", help="The name of the run.")]


@contextmanager
def opened(
    store: str,
    *,
    must_exist: bool = True,
    makes: str = "",
    patience_s: float | None = None,
    read_only: bool = False,
) -> Iterator[Runs]:
    """Yield the runs of a store, and close it.

    Args:
        store: Its path; its address in Postgres; or ``module:name`` of a `Store`, of `Runs`, or of a function that
            returns one.
        must_exist: What is not there is not made.
        makes: The option of the command that would make it.
        patience_s: Of the runs; see `Runs`.
        read_only: Nothing is made or written, except by a store that code makes.

    Raises:
        UsageError: There is no store at this path, or a folder.
        ConfigError: There is no such module or name.
    """
    is_there = "://" in store or Path(store).exists()
    if _NAMED.fullmatch(store) and not is_there:
        runs = _named(store, patience_s)
        try:
            yield runs
        finally:
            runs.close()
        return
    if must_exist and not is_there:
        remedy = f"; pass {makes} to make it" if makes else ""
        raise UsageError(f"expected a store that 'ask --store' or Agent(store=…) has made, got {store!r}{remedy}")
    signing_key = os.environ.get(KEY_VARIABLE) or None
    runs = Runs(store, signing_key=signing_key, patience_s=patience_s, read_only=read_only)
    try:
        yield runs
    finally:
        runs.close()


def _named(name: str, patience_s: float | None) -> Runs:
    """Return the runs of a store that code makes."""
    with modules_here():
        found = loaded(name, "store")
        store = found() if isinstance(found, FunctionType) else found
    if isinstance(store, Runs):
        return store
    return Runs(store, signing_key=os.environ.get(KEY_VARIABLE) or None, patience_s=patience_s)


def turns_of(runs: Runs, conversation: str, which: RunFilter, limit: int) -> tuple[Page, bool]:
    """Return the turns of a conversation that the filters take, the newest first, and whether there are more.

    Raises:
        UsageError: There is no such conversation.
    """
    head = runs.store.head(conversation)
    if not head.version:
        raise UsageError(f"expected a conversation in this store, got {conversation!r}, which it does not have")
    asked = wanted(None, limit, which)
    found = [*islice((run for run in turns_back(runs.journals, head) if asked.takes_run(run)), limit + 1)]
    return Page(found[:limit]), len(found) > limit
