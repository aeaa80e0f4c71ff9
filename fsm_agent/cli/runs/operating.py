"""The commands of operators: ``fsm-agent runs cancel``, ``retry``, ``requeue``, ``stats``, ``backup`` and ``delete``.

None needs the code of an agent.
"""

from __future__ import annotations

import getpass
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from fsm_agent.cli.models import Debug, Json
from fsm_agent.cli.render import json_text
from fsm_agent.cli.reporting import error_text, reporting
from fsm_agent.cli.runs.reading import StorePath, opened
from fsm_agent.cli.runs.tables import counts_table
from fsm_agent.cli.terminal import Screen, one_line
from fsm_agent.errors import FsmAgentError, UsageError
from fsm_agent.store.store import Run

RunNames = Annotated[list[str], typer.Argument(metavar="RUN...", help="The names of the runs.")]
By = Annotated[str | None, typer.Option(help="Who does it; by default the user of this OS process.")]
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def cancel(
    store: StorePath,
    names: RunNames,
    reason: Annotated[str, typer.Option(help="Why, for people.")] = "",
    by: By = None,
    debug: Debug = False,
) -> None:
    """Cancel runs; the driver of each, the present or the next, ends it."""
    with reporting(debug), opened(store) as runs, Screen() as screen:

        def act(name: str) -> str:
            runs.cancel(name, reason, by=user() if by is None else by)
            return "is to be cancelled; its next driver ends it"

        _each(screen, names, act)


def retry(store: StorePath, names: RunNames, by: By = None, debug: Debug = False) -> None:
    """Continue failed runs from before their failures; steps that succeeded are not repeated."""
    with reporting(debug), opened(store) as runs, Screen() as screen:

        def act(name: str) -> str:
            step = runs.retry(name, by=user() if by is None else by)
            return f"continues from step {step}, and is due"

        _each(screen, names, act)


def requeue(store: StorePath, names: RunNames, by: By = None, debug: Debug = False) -> None:
    """Make resting or stuck runs due now, so that a worker takes them."""
    with reporting(debug), opened(store) as runs, Screen() as screen:

        def act(name: str) -> str:
            return "is due now" if runs.requeue(name, by=user() if by is None else by) else "was due already"

        _each(screen, names, act)


def _each(screen: Screen, names: Sequence[str], act: Callable[[str], str]) -> None:
    """Do something with each run, and tell it; refused ones do not keep the others from it.

    Raises:
        UsageError: Some were refused.
    """
    refused: list[FsmAgentError] = []
    for name in names:
        try:
            screen.line(f"{one_line(name)} {act(name)}")
        except FsmAgentError as error:
            if len(names) == 1:
                raise
            refused.append(error)
            screen.tell(error_text(error), "red")
    if refused:
        raise UsageError(f"{len(refused)} of {len(names)} runs were refused")


def stats(store: StorePath, as_json: Json = False, debug: Debug = False) -> None:
    """Count runs by agent and state: how many there are, have failed, ask a question or are stuck.

    Also show how long ago the oldest one last changed.
    """
    with reporting(debug), opened(store, read_only=True) as runs, Screen() as screen:
        counts = runs.store.stats()
        if as_json:
            screen.line(json_text(to_builtins(counts)))
        elif counts:
            screen.show(counts_table(counts), is_whole=True)
        else:
            screen.tell("no runs")


def backup(
    store: StorePath,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy, a file that does not exist yet.")],
    debug: Debug = False,
) -> None:
    """Copy a store in SQLite, whole and consistent, while workers run; the copy is a store."""
    with reporting(debug):
        if "://" in store:
            right = "copy one in Postgres with pg_dump --schema=…, see docs/runs.md"
            raise UsageError(f"expected a store in SQLite, got one in Postgres; {right}")
        with opened(store, read_only=True) as runs, Screen() as screen:
            copied: Callable[[Path], int] | None = getattr(runs.store, "backup", None)
            if copied is None:
                raise UsageError(f"expected a SqliteStore, got {type(runs.store).__name__}, which cannot be copied")
            count = copied(file)
            screen.line(f"{count:,} bytes copied to {one_line(str(file))}")


def delete(
    store: StorePath,
    names: RunNames,
    force: Annotated[bool, typer.Option("--force", help="Also those from which a conversation is read.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete runs that have not ended without asking.")] = False,
    debug: Debug = False,
) -> None:
    """Delete runs, with their journals, posts and questions; asks about those that have not ended."""
    with reporting(debug), opened(store) as runs, Screen() as screen:
        for name in names:
            conversation = runs.needed_by(name)
            if conversation and force:
                screen.tell(
                    f"the conversation {conversation!r} cannot be continued: it is read from {one_line(name)}", "yellow"
                )
            elif conversation:
                raise UsageError(
                    f"the conversation {conversation!r} is read from the run {name!r}, and cannot be continued"
                    " without it; nothing was deleted: pass --force to delete it all the same"
                )
        if not yes:
            _ask_about(screen, [row for row in map(runs.store.get, names) if not row.is_ended])
        for name in names:
            runs.store.delete(name)
            screen.line(f"deleted {one_line(name)}")


def _ask_about(screen: Screen, going: Sequence[Run]) -> None:
    """Ask whether runs that have not ended are to be deleted.

    Raises:
        UsageError: There is no terminal to ask at.
        typer.Abort: They are not.
    """
    if not going:
        return
    named = ", ".join([one_line(row.id) for row in going[:3]]) + (f" and {len(going) - 3} more" if going[3:] else "")
    what = f"{named} {'has' if len(going) == 1 else 'have'} not ended"
    if not sys.stdin.isatty():
        raise UsageError(f"{what}; nothing was deleted: pass --yes to delete all, or use 'runs cancel'")
    if screen.ask(f"{what}. Delete all the same? [y/N] ").strip().lower() not in ("y", "yes"):
        raise typer.Abort


def prune(
    store: StorePath,
    older_than: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Delete those that ended longer ago: 90s, 15m, 12h, 30d or 8w.")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=0, help="Keep only this many, the newest.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Delete runs that have ended, by age and count; open runs are left alone."""
    with reporting(debug), opened(store) as runs, Screen() as screen:
        if older_than is None and keep is None:
            raise typer.BadParameter("expected an age or a count, got neither; pass --older-than 30d or --keep 1000")
        max_age_s = None if older_than is None else seconds_of(older_than)
        found = runs.prune(max_age_s=max_age_s, keep=keep, is_dry=dry_run)
        _say_pruned(screen, found, dry_run=dry_run, as_json=as_json)


def _say_pruned(screen: Screen, found: Sequence[Run], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        screen.line(
            json_text({"deleted": [] if dry_run else [run.id for run in found], "found": [run.id for run in found]})
        )
        return
    for run in found:
        screen.line(one_line(run.id))
    what = "run" if len(found) == 1 else "runs"
    screen.tell(f"{len(found)} {what} would be deleted" if dry_run else f"{len(found)} {what} deleted")


def seconds_of(span: str, option: str = "--older-than") -> float:
    """Return the seconds of a span of time, the value of an option.

    Raises:
        typer.BadParameter: It is no span of time.
    """
    if (found := _SPAN.fullmatch(span)) is None:
        raise typer.BadParameter(
            f"expected a span of time such as 90s, 15m, 12h, 30d or 8w, got {span!r}", param_hint=option
        )
    return float(found[1]) * _SECONDS[found[2]]


def user() -> str:
    """Return the name of the user of this OS process; empty: not known."""
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return ""
