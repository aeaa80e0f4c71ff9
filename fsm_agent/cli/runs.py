"""The commands ``fsm-agent runs …``.

Only `replay`, `resume` and some forks need an agent's code; the other commands just read journals and post signals.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import to_builtins

from fsm_agent._internal.structs import to_json
from fsm_agent._internal.text import counted, plain
from fsm_agent.agents.agent import Agent
from fsm_agent.call.journal import Header, header_of
from fsm_agent.call.limits import Limits
from fsm_agent.call.outcomes import Approved, Cancelled, Denied, FunctionFailed, Modified, Outcome, Returned, RunAgain
from fsm_agent.cli import loading, options, run_tables
from fsm_agent.cli.diagram import AsFormat, Output, draw
from fsm_agent.cli.errors import error_text, option
from fsm_agent.cli.options import Many, RunName, StoreOption, open_store
from fsm_agent.cli.output import Advice, Command, drive_and_show
from fsm_agent.cli.questions import Approver, fill_in, how_to_answer, is_at_terminal, question_of
from fsm_agent.cli.terminal import Screen, json_text, one_line
from fsm_agent.diagrams.machine_diagrams import table_diagram, trace_diagram
from fsm_agent.errors import FsmAgentError, ReplayError, UsageError, hint
from fsm_agent.functions.context import LATER
from fsm_agent.store.claiming import ProcessFactory
from fsm_agent.store.history import UNKNOWN, HistoryEntry, RunHistory, divergence, read
from fsm_agent.store.history import as_json as divergence_json
from fsm_agent.store.rescheduling import STUCK_STATE
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Run, RunFilter

app = typer.Typer(no_args_is_help=True, help="List, show, answer and continue the runs in a store.")

RunNames = Annotated[list[str], typer.Argument(metavar="RUN...", help="The names of the runs.")]
_STEP = "The number of the last entry; or a step of a flow, such as review#3, to go back to where it began."
Step = Annotated[str | None, typer.Option(metavar="STEP", help=_STEP)]
_KEY = "The key of the question; --cancel without a key ends the run."
_RESULT = "The result of the function; for a flow, the answer as JSON."
_AGAIN = "Run the function again, because it had no effect; or retry a stuck run."
_CODE = "The module with the agent or flow, for --data, names of steps, and questions of the fork."
_INSIDE = "An agent or flow inside the run, such as run:2.0; 'runs show' lists them."


@app.command("list", cls=Command)
def list_runs(
    store: StoreOption,
    asked: Annotated[bool, typer.Option("--asked", help="Show only open questions, one per line.")] = False,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this agent.")] = None,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="Only runs in this state.")] = None,
    ended: Annotated[
        bool | None, typer.Option("--ended/--open", help="Only runs that have ended, or only those that have not.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only runs that failed.")] = False,
    waiting_for: Annotated[
        str | None, typer.Option(metavar="KIND", help="Only runs with a question of this kind, such as approval.")
    ] = None,
    older_than: Annotated[float | None, options.span("Only runs unchanged for this long, such as 12h or 30d.")] = None,
    text: Annotated[str, typer.Option(metavar="TEXT", help="Only runs with this text in their name or task.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, metavar="N", help="Show at most this many runs.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="PLACE", help="Show the next page.")] = None,
    as_json: options.Json = False,
) -> None:
    """List runs, the most recently changed first."""
    with open_store(store, read_only=True) as runs, Screen() as screen:
        which = RunFilter(
            agent=agent,
            state=state,
            ended=ended,
            failed=True if failed else None,
            asked=asked,
            waiting_for=waiting_for,
            changed_before=None if older_than is None else time.time() - older_than,
            text=text,
        )
        found = runs.store.list(after=after, limit=limit, **which)
        if as_json:
            screen.line(json_text({"runs": to_builtins([*found]), "next": found.next}))
            return
        if found:
            screen.show((run_tables.questions_table if asked else run_tables.runs_table)(found))
        elif found.next is None:
            screen.tell("no question is open" if asked else "no such runs")
        if found.next is not None:
            screen.tell(f"there are more; pass --after {found.next}")


@app.command(cls=Command)
def show(store: StoreOption, run: RunName, as_json: options.Json = False) -> None:
    """Show a run: what it waits for, and its path through the states."""
    with open_store(store, read_only=True) as runs, Screen() as screen:
        reading = read(runs, run)
        if as_json:
            screen.line(json_text(_shown_json(reading)))
        else:
            for text, style in run_tables.head_lines(reading):
                screen.prose(text, style)
            if reading.entries:
                screen.line()
                screen.show(run_tables.RunPicture(reading))
            if len(reading.processes) > 1:
                screen.line()
                screen.show(run_tables.processes_table(reading))
        if not reading.is_sound:
            raise UsageError(f"the journal of the run {run!r} is damaged: {reading.verdict}")


@app.command(cls=Command)
def replay(
    store: StoreOption, run: RunName, agents: options.AgentsModule, step: Step = None, as_json: options.Json = False
) -> None:
    """Check every entry against the current code; --step shows the run as it was."""
    with Screen() as screen, open_store(store) as runs:
        definition, header = _code_of(runs, run, agents)
        if step is not None:
            _tell_past(screen, runs.at(run, _step(step), definition), as_json=as_json)
            return
        row = runs.store.get(run)
        call = runs.replay(run, definition)
        n, is_same = call.journal.chain.n, call.fingerprint == header.fingerprint
        has_rested = row.holder is None and n == row.n and row.state not in ("", STUCK_STATE)
        if has_rested and str(call.state) != row.state:
            was = f"after entry {n} the run was in {row.state!r} then"
            raise ReplayError(f"{was}, and would be in {str(call.state)!r} now")
        entries = read(runs, run).entries
        if as_json:
            report = {"run": run, "entries": n, "state": str(call.state), "is_definition_unchanged": is_same}
            refused = [{"n": entry.n, "key": entry.key, "why": entry.why} for entry in entries if entry.why]
            screen.line(json_text({**report, "refused": refused}))
            return
        code = "the definition of the agent is the same" if is_same else "although its definition has changed"
        screen.prose(f"{n} entries verified, each decided now as it was then; {code}. The run is in {call.state}.")
        for entry in entries:
            if why := run_tables.why_of(entry):
                screen.prose(f"entry {entry.n} ({one_line(entry.key)}): {why}")
        if not row.is_ended:
            screen.prose(one_line(run_tables.rest_of(row)))


def _code_of(runs: Runs, run: str, agents: str) -> tuple[ProcessFactory, Header]:
    """Return a run's header, and a factory that makes the run's process from the module's code."""
    found, prompts = option("--agents", loading.load_runnables, agents)
    header = header_of(runs.store.load(run, after=None).header)
    by_name = {agent.name: agent for agent in found}
    if header.agent not in by_name:
        raise UsageError(f"{agents!r}: expected the run's agent {header.agent!r}, got {', '.join(sorted(by_name))}")
    by_path = {prompt.path: prompt for prompt in prompts}
    return by_name[header.agent]._definition_of_run(header, LATER, by_path), header


def _step(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text


def _tell_past(screen: Screen, process: Any, *, as_json: bool) -> None:
    """Show a process as it was, with its state, what it waited for and, for a flow, the data."""
    waits = [effect.key for effect in process.effects]
    report = {"run": process.journal.run, "step": process.journal.n, "state": str(process.state), "waits_for": waits}
    data = process.flow.data_json(process.data) if hasattr(process, "flow") else None
    if as_json:
        screen.line(json_text(report if data is None else {**report, "data": json.loads(data)}))
        return
    about = f", waiting for {', '.join(map(one_line, waits))}" if waits else ""
    screen.prose(f"After step {process.journal.n} the run was in {process.state}{about}.")
    if data is not None:
        screen.line(json_text(json.loads(data)))


@app.command(cls=Command)
def fork(
    store: StoreOption,
    run: RunName,
    name: Annotated[str, typer.Argument(metavar="NEW", help="The name of the fork.")],
    step: Step = None,
    data: Annotated[
        str | None, typer.Option(metavar="JSON", help="New data for a flow, which then enters its state again.")
    ] = None,
    agents: Annotated[str | None, typer.Option(metavar="MODULE", help=_CODE)] = None,
    by: options.By = None,
) -> None:
    """Create another run that continues from an entry of this one."""
    with Screen() as screen, open_store(store) as runs:
        at, who = None if step is None else _step(step), options.user_or(by)
        if agents is None:
            if data is not None or isinstance(at, str):
                what = "--data" if data is not None else "--step"
                raise typer.BadParameter(
                    "expected the code of the flow, got none; pass --agents MODULE", param_hint=what
                )
            runs.fork(run, at, name, by=who)
        else:
            from fsm_agent.flows.run import edit_of

            definition, _ = _code_of(runs, run, agents)
            past = runs.at(run, at, definition)
            if data is not None and not hasattr(past, "flow"):
                raise typer.BadParameter(f"expected the run of a flow, which has data, got {past}", param_hint="--data")
            edit = "" if data is None else to_json(edit_of(past, past.flow.data_of(data), who))
            runs.fork(run, past.journal.n, name, definition, by=who, edit=edit)
        forked = header_of(runs.store.load(name, after=None).header).forked
        assert forked is not None
        screen.line(f"{one_line(name)} continues {one_line(run)} from step {forked[1]}")


@app.command(cls=Command)
def diagram(
    store: StoreOption,
    run: RunName,
    format: AsFormat = None,
    output: Output = None,
    inside: Annotated[str, typer.Option(metavar="PATH", help=_INSIDE)] = "",
) -> None:
    """Draw the path that a run took through the states."""
    with open_store(store, read_only=True) as runs:
        reading = read(runs, run)
        if inside not in reading.processes:
            raise UsageError(f"expected a path inside the run {run!r}, got {inside!r}{hint(inside, reading.processes)}")
        process = reading.processes[inside]
        title = f"The run {one_line(run)}" + (f": {one_line(inside)}" if inside else "")
        if process.kind != "call":
            draw(table_diagram(reading.table(inside), process.trace, title=title), format, output)
        elif UNKNOWN in {step.to for step in process.trace}:
            raise UsageError(f"the run {run!r} cannot be drawn: its journal has steps that no agent call takes")
        else:
            draw(trace_diagram(process.trace, title=title), format, output)


@app.command(cls=Command)
def diff(
    store: StoreOption,
    run: RunName,
    other: Annotated[str, typer.Argument(metavar="RUN", help="The run to compare with.")],
    as_json: options.Json = False,
) -> None:
    """Show the first entry at which two runs differ."""
    with open_store(store, read_only=True) as runs, Screen() as screen:
        a, b = read(runs, run), read(runs, other)
        where = divergence(a, b)
        if as_json:
            screen.line(json_text(divergence_json(where)))
            return
        if where.beginning:
            screen.line("they begin differently:")
            screen.show(run_tables.differences_table((run, other), where.beginning))
        if where.n is None:
            screen.prose(f"their {len(a.entries)} entries are the same, but for times and names")
        else:
            screen.line(f"they part at entry {where.n}:")
            screen.show(run_tables.differences_table((run, other), where.entry))


@app.command(cls=Command)
def export(
    store: StoreOption,
    run: RunName,
    redact: Annotated[
        str | None, typer.Option(metavar="MODULE:NAME", help="A function that removes secrets from an outcome.")
    ] = None,
) -> None:
    """Print the journal of a run as JSON lines."""
    with open_store(store, read_only=True) as runs:
        with redirect_stdout(sys.stderr):
            function = None if redact is None else option("--redact", loading.load_callable, redact)
            text = "".join([f"{line}\n" for line in runs.export(run, function)])
        if sys.stdout.isatty():  # characters that could control the terminal are escaped
            text = "".join([c if plain(c) else json.dumps(c)[1:-1] for c in text])
        sys.stdout.write(text)


@app.command(cls=Command)
def answer(
    store: StoreOption,
    run: RunName,
    key: Annotated[str | None, typer.Argument(metavar="KEY", help=_KEY)] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Allow the function call.")] = False,
    deny: Annotated[bool, typer.Option("--deny", help="Do not allow the function call.")] = False,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Allow the function call with these arguments instead.")
    ] = None,
    result: Annotated[str | None, typer.Option(metavar="TEXT", help=_RESULT)] = None,
    failed: Annotated[str | None, typer.Option(metavar="TEXT", help="The function and the run failed.")] = None,
    run_again: Annotated[bool, typer.Option("--run-again", "--again", help=_AGAIN)] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End the run.")] = False,
    reason: Annotated[str, typer.Option(help="The reason, for --deny or --cancel.")] = "",
    by: options.By = None,
) -> None:
    """Answer a question, so that the run can continue. If you give no answer, a form asks for one."""
    at_s = time.time()
    with open_store(store) as runs, Screen() as screen:
        if reason and not (cancel or deny):
            raise typer.BadParameter("expected --deny or --cancel with a reason, got neither", param_hint="--reason")
        given = (
            approve and Approved(at_s=at_s),
            arguments is not None and Modified(arguments, at_s=at_s),
            deny and Denied(reason, at_s=at_s),
            result is not None and Returned(text=result, at_s=at_s),
            failed is not None and FunctionFailed(text=failed, at_s=at_s),
            run_again and RunAgain(at_s=at_s),
            cancel and Cancelled(reason=reason, at_s=at_s),
        )
        answers: list[Outcome] = [outcome for outcome in given if outcome]
        if len(answers) > 1:
            right = ", ".join([words.split(" ")[0] for words in run_tables.OPTIONS.values()])
            raise typer.BadParameter(f"expected one of {right}, got {len(answers)}")
        if not answers:
            question = question_of(runs.store.get(run), key, screen)
            key = question.key
            if not is_at_terminal():
                right = f"pass {one_line(shlex.quote(key))} with {one_line(how_to_answer(question))}"
                raise typer.BadParameter(f"expected an answer to {one_line(key)!r}, got none; {right}")
            answers = [fill_in(question, screen)]
        if key is None and not cancel:
            right = "find it with 'runs show'"
            raise typer.BadParameter(f"expected the key of a question, got none; {right}", param_hint="KEY")
        runs.answer(run, {key or "": answers[0]}, by=options.user_or(by))
        about = f"{one_line(key)} of the run" if key else "the run"
        screen.line(f"posted {answers[0].kind} to {about} {one_line(run)!r}, for the next process that continues it")


@app.command(cls=Command)
def resume(
    store: StoreOption,
    run: RunName,
    model: options.Model = options.EMBEDDED,
    base_url: options.BaseUrl = None,
    function: options.Functions = None,
    prompt: options.NamedPrompt = None,
    setting: Annotated[Many, typer.Option("--set", help="A setting: temperature=0, max_tokens=99. Repeatable.")] = None,
    deps: options.Deps = None,
    as_json: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Continue a run of 'ask --store' that was answered or interrupted."""
    with Screen(quiet=quiet, as_json=as_json) as screen, open_store(store) as runs:
        functions, chosen = options.code_for(model, base_url, function, prompt, screen)
        settings, limits = options.settings_of(model, base_url, setting)
        if limits != Limits():
            what = "expected settings alone, got limits; those of a run stay as they were"
            raise typer.BadParameter(what, param_hint="--set")
        name = header_of(runs.store.load(run, after=None).header).agent
        with options.connected(model, base_url, screen) as (client, model_name):
            approver = Approver(screen)
            agent = Agent(client, functions=functions, name=name, settings=settings, approve=approver, store=runs)
            given = loading.load_deps(deps, [agent])
            advice = Advice(
                command=f"fsm-agent runs answer {shlex.quote(run)} {options.store_option(store)}",
                again=shlex.join(["fsm-agent", *sys.argv[1:]]),
            )

            def drive(sink: Any) -> Any:
                return agent.runs.resume(run, prompt=chosen, deps=given, sink=sink)

            drive_and_show(drive, screen, advice, model=model_name)


@app.command(cls=Command)
def cancel(
    store: StoreOption,
    names: RunNames,
    reason: Annotated[str, typer.Option(help="The reason, for people who look at the run.")] = "",
    by: options.By = None,
) -> None:
    """Cancel runs. A cancelled run ends when a process continues it."""

    def act(runs: Runs, name: str) -> str:
        runs.cancel(name, reason, by=options.user_or(by))
        return "is to be cancelled; its next driver ends it"

    _each(store, names, act)


@app.command(cls=Command)
def retry(store: StoreOption, names: RunNames, by: options.By = None) -> None:
    """Continue failed runs from just before their failures."""

    def act(runs: Runs, name: str) -> str:
        return f"continues from step {runs.retry(name, by=options.user_or(by))}, and is due"

    _each(store, names, act)


@app.command(cls=Command)
def requeue(store: StoreOption, names: RunNames, by: options.By = None) -> None:
    """Make waiting or stuck runs due now, so that a worker continues them."""

    def act(runs: Runs, name: str) -> str:
        return "is due now" if runs.requeue(name, by=options.user_or(by)) else "was due already"

    _each(store, names, act)


def _each(store: str, names: Sequence[str], act: Callable[[Runs, str], str]) -> None:
    """Apply ``act`` to each run and report the result, continuing after a run that is refused."""
    refused = 0
    with open_store(store) as runs, Screen() as screen:
        for name in names:
            try:
                screen.line(f"{one_line(name)} {act(runs, name)}")
            except FsmAgentError as error:
                if len(names) == 1:
                    raise
                refused += 1
                screen.tell(error_text(error), "red")
        if refused:
            raise UsageError(f"{refused} of {len(names)} runs were refused")


@app.command(cls=Command)
def stats(store: StoreOption, as_json: options.Json = False) -> None:
    """Count runs by agent and state."""
    with open_store(store, read_only=True) as runs, Screen() as screen:
        counts = runs.store.stats()
        if as_json:
            screen.line(json_text(to_builtins(counts)))
        elif counts:
            screen.show(run_tables.counts_table(counts))
        else:
            screen.tell("no runs")


@app.command(cls=Command)
def backup(
    store: StoreOption,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file for the copy, which must not exist yet.")],
) -> None:
    """Copy a SQLite store, even while workers are running."""
    if "://" in store:
        right = "copy one in Postgres with pg_dump --schema=…, see docs/production.md"
        raise UsageError(f"expected a store in SQLite, got one in Postgres; {right}")
    with open_store(store, read_only=True) as runs, Screen() as screen:
        copied: Callable[[Path], int] | None = getattr(runs.store, "backup", None)
        if copied is None:
            raise UsageError(f"expected a SqliteStore, got {type(runs.store).__name__}, which cannot be copied")
        screen.line(f"{copied(file):,} bytes copied to {one_line(str(file))}")


@app.command(cls=Command)
def delete(
    store: StoreOption,
    names: RunNames,
    force: Annotated[bool, typer.Option("--force", help="Also delete runs that a conversation needs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask about runs that have not ended.")] = False,
) -> None:
    """Delete runs, after asking about those that have not ended."""
    with open_store(store) as runs, Screen() as screen:
        for name in names:
            conversation = runs.needed_by(name)
            if conversation and force:
                lost = f"the conversation {conversation!r} cannot be continued: it is read from {one_line(name)}"
                screen.tell(lost, "yellow")
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
    """Ask whether to delete runs that have not ended."""
    if not going:
        return
    named = ", ".join([one_line(row.id) for row in going[:3]]) + (f" and {len(going) - 3} more" if going[3:] else "")
    what = f"{named} {'has' if len(going) == 1 else 'have'} not ended"
    if not is_at_terminal():
        raise UsageError(f"{what}; nothing was deleted: pass --yes to delete all, or use 'runs cancel'")
    if screen.ask(f"{what}. Delete all the same? [y/N] ").strip().lower() not in ("y", "yes"):
        raise typer.Abort


@app.command(cls=Command)
def prune(
    store: StoreOption,
    older_than: Annotated[float | None, options.span("Delete runs that ended longer ago than 90s, 12h, 30d …")] = None,
    keep: Annotated[int | None, typer.Option(min=0, help="Keep only this many of the newest runs.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs.")] = False,
) -> None:
    """Delete runs that have ended, by age and count."""
    if older_than is None and keep is None:
        raise typer.BadParameter("expected an age or a count, got neither; pass --older-than 30d or --keep 1000")
    with open_store(store) as runs, Screen() as screen:
        found = [run.id for run in runs.prune(max_age_s=older_than, keep=keep, is_dry=dry_run)]
        for name in found:
            screen.line(one_line(name))
        screen.tell(f"{counted(len(found), 'run')} {'would be deleted' if dry_run else 'deleted'}")


def _shown_json(reading: RunHistory) -> dict[str, Any]:
    return {
        "run": to_builtins(reading.run),
        "title": reading.title,
        "kind": reading.kind,
        "header": {**json.loads(to_json(reading.header)), "seed": reading.seed},
        "verdict": reading.verdict,
        "is_sound": reading.is_sound,
        "processes": [
            {"path": path, "kind": one.kind, "name": one.name, "task": one.task, "n": one.n, "state": one.state}
            for path, one in reading.processes.items()
        ],
        "entries": [_entry_json(reading, entry) for entry in reading.entries],
    }


def _entry_json(reading: RunHistory, entry: HistoryEntry) -> dict[str, Any]:
    own = [move.step for move in entry.moves if not move.path and move.step.to != UNKNOWN]
    return {
        "n": entry.n,
        "key": entry.key,
        "outcome": entry.data,
        "steps": to_builtins(entry.line.steps),
        "why": entry.why,
        "by": entry.by,
        "fence": entry.line.fence,
        "context": None if (use := reading.uses.get(entry.key)) is None else to_builtins(use),
        "from": own[0].source if own else None,
        "to": own[-1].to if own else None,
        "moves": [
            {"path": move.path, "trigger": move.step.trigger, "from": move.step.source, "to": move.step.to}
            for move in entry.moves
        ],
    }
