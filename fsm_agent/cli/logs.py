"""The commands ``fsm-agent logs …``: questions of ``fsm-agent ask`` and their answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from typing import Annotated, Any

import typer

from fsm_agent._internal.plain_text import plain
from fsm_agent.cli.log_store import AGENT, VARIABLE, log_file, newest
from fsm_agent.cli.models import Debug, Json
from fsm_agent.cli.render import json_text
from fsm_agent.cli.reporting import reporting
from fsm_agent.cli.runs.reading import opened
from fsm_agent.cli.terminal import Screen, one_line
from fsm_agent.errors import UsageError
from fsm_agent.lifecycle.outcomes import Replied, Returned
from fsm_agent.messages.message import Message
from fsm_agent.store.reading import RunReading, read
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Run

app = typer.Typer(no_args_is_help=False, help="Questions and their answers: list, show and search them.")

Count = Annotated[int, typer.Option("--limit", "-l", min=1, max=1000, help="At most this many, the newest first.")]
Database = Annotated[str | None, typer.Option("--store", help="Another file with runs of ask, or its address.")]


@app.callback(invoke_without_command=True)
def logs(ctx: typer.Context) -> None:
    """List, show and search questions and their answers."""
    if ctx.invoked_subcommand is None:
        list_calls()


@app.command("list")
def list_calls(limit: Count = 20, store: Database = None, as_json: Json = False, debug: Debug = False) -> None:
    """List the last calls, a line each: when, the name of the run, how it ended, and the question."""
    with reporting(debug), Screen() as screen, redirect_stdout(sys.stderr), _opened(store) as runs:
        _tell(screen, list(runs.store.list(agent=AGENT, limit=limit)), as_json=as_json)


@app.command()
def search(
    words: Annotated[
        list[str], typer.Argument(metavar="WORD...", help="All of them are in the question or the answer.")
    ],
    limit: Count = 20,
    store: Database = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the calls that have these words in their question or answer, the newest first."""
    with reporting(debug), Screen() as screen, redirect_stdout(sys.stderr), _opened(store) as runs:
        wanted = [word.casefold() for word in words]
        found = list[Run]()
        for run in newest(runs):
            text = "\n".join([message.text for message in _messages(read(runs, run.id))]).casefold()
            if all(word in text for word in wanted):
                found.append(run)
            if len(found) == limit:
                break
        _tell(screen, found, as_json=as_json)


@app.command()
def show(
    run: Annotated[str | None, typer.Argument(help="The run; by default the last one.")] = None,
    answer: Annotated[bool, typer.Option("--answer", help="Only the answer.")] = False,
    store: Database = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a call: its messages, what its functions returned, and its tokens."""
    with reporting(debug), Screen() as screen, redirect_stdout(sys.stderr), _opened(store) as runs:
        if run is None:
            last = next(newest(runs), None)
            if last is None:
                raise UsageError("nothing was kept yet")
            run = last.id
        reading = read(runs, run)
        messages = _messages(reading)
        answers = [message.text for message in messages if message.role == "assistant" and message.text]
        if answer:
            screen.line(answers[-1] if answers else "")
        elif as_json:
            told = [{"role": message.role, "text": message.text} for message in messages]
            usage = {"input_tokens": reading.usage.input_tokens, "output_tokens": reading.usage.output_tokens}
            screen.line(json_text({**_row(reading.run), "messages": told, "usage": usage}))
        else:
            screen.line(_line(reading.run), "bold")
            for message in messages:
                screen.line(f"{message.role}:", "dim")
                screen.line(plain(message.text))
            screen.tell(f"{reading.usage.input_tokens or 0:,} tokens in, {reading.usage.output_tokens or 0:,} out")


@app.command()
def path(debug: Debug = False) -> None:
    """Print the path of the file."""
    with reporting(debug), Screen() as screen:
        screen.line(str(_path()))


def _path() -> str:
    found = log_file()
    if found is None:
        raise UsageError(f"nothing is kept, since {VARIABLE} is off")
    return str(found)


@contextmanager
def _opened(store: str | None) -> Iterator[Runs]:
    place = _path() if store is None else store
    with opened(place, read_only=True) as runs:
        yield runs


def _messages(reading: RunReading) -> list[Message]:
    """Return what was said in a call, as far as its journal has it: the question, replies, results."""
    found = list[Message]()
    if isinstance(reading.seed, dict):
        found += [
            Message.of(item.get("role", "user"), *[part["text"] for part in item.get("parts", ()) if "text" in part])
            for item in reading.seed.get("dialog", ())
        ]
    for entry in reading.entries:
        if entry.path:
            continue
        if isinstance(entry.outcome, Replied):
            found.append(entry.outcome.reply.message)
        elif isinstance(entry.outcome, Returned):
            found.append(Message.of("tool", entry.outcome.text))
    return found


def _tell(screen: Screen, runs: list[Run], *, as_json: bool) -> None:
    if as_json:
        screen.line(json_text([_row(run) for run in runs]))
        return
    for run in runs:
        screen.line(_line(run))
    if not runs:
        screen.tell("nothing was found")


def _line(run: Run) -> str:
    when = datetime.fromtimestamp(run.created_s).astimezone().strftime("%Y-%m-%d %H:%M")
    return f"{when}  {run.id}  {run.state or 'Seeded'}  {one_line(run.title)}"


def _row(run: Run) -> dict[str, Any]:
    return {"run": run.id, "created_s": run.created_s, "state": run.state, "question": run.title}
