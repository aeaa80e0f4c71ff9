"""The commands ``fsm-agent runs …``.

All but `replay` and `resume` need no code of an agent: they read journals and post letters.  More than 300 lines,
because the options of a command are the parameters of its function.
"""

from __future__ import annotations

import getpass
import json
import re
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from typing import Annotated, Any

import typer
from msgspec import to_builtins

from fsm_agent._internal.plain_text import plain
from fsm_agent.agents.agent import Agent
from fsm_agent.cli import completion
from fsm_agent.cli.drawings import AsFormat, Output, draw
from fsm_agent.cli.json_lines import LineWriter
from fsm_agent.cli.models import (
    EMBEDDED,
    BaseUrl,
    Debug,
    Functions,
    Json,
    JsonLines,
    Many,
    Model,
    NamedPrompt,
    Quiet,
    code_of,
    connected,
    guesses,
    settings_of,
)
from fsm_agent.cli.options import load_callable, load_runnables, store_option
from fsm_agent.cli.render import Approver, json_text
from fsm_agent.cli.render import answer as show_answer
from fsm_agent.cli.reporting import option, reporting
from fsm_agent.cli.runs.differences import as_json as parting_json
from fsm_agent.cli.runs.differences import parting
from fsm_agent.cli.runs.picture import picture
from fsm_agent.cli.runs.reading import RunReading, StorePath, opened, read, turns_of
from fsm_agent.cli.runs.tables import OPTIONS, differences_table, head_lines, questions_table, runs_table
from fsm_agent.cli.terminal import Screen, one_line
from fsm_agent.diagrams.diagram import trace_diagram
from fsm_agent.errors import CallSuspended, ReplayError, UsageError
from fsm_agent.lifecycle.limits import Limits
from fsm_agent.lifecycle.outcomes import (
    Approved,
    Cancelled,
    Denied,
    FunctionFailed,
    Modified,
    Returned,
    RunAgain,
)
from fsm_agent.machine.journal import header_of
from fsm_agent.runtime.private_files import write_private
from fsm_agent.store.claiming import STUCK_STATE
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Run

app = typer.Typer(no_args_is_help=True, help="Runs in a store: see them, answer them, go on with them.")

RunName = Annotated[str, typer.Argument(metavar="RUN", autocompletion=completion.runs, help="The name of the run.")]
AgentsModule = Annotated[
    str,
    typer.Option(
        "--agents",
        autocompletion=completion.agents_here,
        help="The module with the agents, or what of it, as module:name.",
    ),
]
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@app.command("list")
def list_runs(
    store: StorePath,
    asked: Annotated[bool, typer.Option("--asked", help="Only open questions, one a line.")] = False,
    agent: Annotated[
        str | None, typer.Option(autocompletion=completion.agents, help="Only runs of this agent.")
    ] = None,
    ended: Annotated[
        bool | None, typer.Option("--ended/--open", help="Only those that have ended, or have not.")
    ] = None,
    conversation: Annotated[str | None, typer.Option(help="Only the turns of this conversation.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=sys.maxsize, help="At most so many, the last changed first.")] = 100,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List runs, the last changed first."""
    with reporting(debug), opened(store) as runs, Screen() as screen:
        if conversation is None:
            found = runs.store.list(agent=agent, ended=ended, asked=asked, limit=limit)
        else:
            found = turns_of(runs, conversation, agent=agent, ended=ended, asked=asked, limit=limit)
        if as_json:
            screen.line(json_text(to_builtins(found)))
        elif found:
            table = questions_table(found, screen.columns) if asked else runs_table(found, screen.columns)
            screen.show(table, is_whole=True)
        else:
            screen.tell("no question is open" if asked else "there are no such runs")


@app.command()
def show(store: StorePath, run: RunName, as_json: Json = False, debug: Debug = False) -> None:
    """Show a run: what it waits for, its path through the states, each entry of its journal."""
    with reporting(debug), opened(store) as runs, Screen() as screen:
        reading = read(runs, run)
        if as_json:
            screen.line(json_text(_shown_json(reading)))
        else:
            for text, style in head_lines(reading):
                screen.prose(text, style, hang="  ")
            if reading.entries:
                screen.line()
                screen.show(picture(reading))
        if not reading.is_sound:
            raise UsageError(f"the journal of the run {run!r} is damaged: {reading.verdict}")


@app.command()
def replay(store: StorePath, run: RunName, agents: AgentsModule, as_json: Json = False, debug: Debug = False) -> None:
    """Fold the whole journal with the agent's present code, and verify every entry."""
    with reporting(debug), Screen() as screen, redirect_stdout(sys.stderr), opened(store) as runs:
        found, prompts = option("--agents", load_runnables, agents)
        loaded = runs.store.load(run, after=0)
        header = header_of(loaded.header)
        by_name = {agent.name: agent for agent in found}
        if header.agent not in by_name:
            raise UsageError(f"the run is one of agent {header.agent!r}; {agents!r} has {', '.join(sorted(by_name))}")
        by_path = {prompt.path: prompt for prompt in prompts}
        call = runs.replay(run, by_name[header.agent].definition_of_run(header, _NO_DEPS, by_path))
        n, is_same, row = call.journal.chain.n, call.definition == header.definition, loaded.run
        if row.holder is None and n == row.n and row.state != STUCK_STATE and str(call.state) != row.state:
            raise ReplayError(
                f"after entry {n} the run was in {row.state!r} then, and would be in {str(call.state)!r} now"
            )
        if as_json:
            report = {"run": run, "entries": n, "state": str(call.state), "is_definition_unchanged": is_same}
            screen.line(json_text(report))
            return
        code = "the definition of the agent is the same" if is_same else "although its definition has changed"
        screen.prose(f"{n} entries verified, each decided now as it was then; {code}. The run is in {call.state}.")


_NO_DEPS: Any = object()  # functions that need some are not run


@app.command()
def diagram(
    store: StorePath,
    run: RunName,
    format: AsFormat = None,
    output: Output = None,
    debug: Debug = False,
) -> None:
    """Draw the states of an agent call, and the path that a run took through them."""
    with reporting(debug), opened(store) as runs:
        reading = read(runs, run)
        if reading.trace is None:
            raise UsageError(f"the run {run!r} is no agent call's: its journal has steps that none takes")
        draw(trace_diagram(reading.trace, title=f"The run {one_line(run)}"), format, output)


@app.command()
def diff(
    store: StorePath,
    run: RunName,
    other: Annotated[
        str, typer.Argument(metavar="RUN", autocompletion=completion.runs, help="The run to compare with.")
    ],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show where two runs diverge: the first entry that differs, and its differences."""
    with reporting(debug), opened(store) as runs, Screen() as screen:
        a, b = read(runs, run), read(runs, other)
        where = parting(a, b)
        if as_json:
            screen.line(json_text(parting_json(where)))
            return
        if where.beginning:
            screen.line("they begin differently:")
            screen.show(differences_table((run, other), where.beginning, screen.columns), is_whole=True)
        if where.n is None:
            screen.prose(f"their {len(a.entries)} entries are the same, but for times and names")
        else:
            screen.line(f"they part at entry {where.n}:")
            screen.show(differences_table((run, other), where.entry, screen.columns), is_whole=True)


@app.command()
def export(
    store: StorePath,
    run: RunName,
    redact: Annotated[
        str | None, typer.Option(help="A function of an outcome that returns it without secrets, as module:name.")
    ] = None,
    output: Output = None,
    debug: Debug = False,
) -> None:
    """Write the journal of a run as lines of JSON: its header and its entries."""
    with reporting(debug), opened(store) as runs:
        with redirect_stdout(sys.stderr):
            function = None if redact is None else option("--redact", load_callable, redact)
            text = "".join([f"{line}\n" for line in runs.export(run, function)])
        if output is None:
            sys.stdout.write(_escape(text) if sys.stdout.isatty() else text)
            return
        try:
            is_device = output.exists() and not output.is_file()  # never replace a device such as /dev/null
            output.write_bytes(text.encode()) if is_device else write_private(output.resolve(), text.encode())
        except OSError as error:
            raise UsageError(f"nothing can be written to {str(output)!r}: {error.strerror or error}") from error


def _escape(text: str) -> str:
    """Escape all characters in lines of JSON that could be commands to a terminal."""
    return "".join([c if plain(c) else json.dumps(c)[1:-1] for c in text])


@app.command()
def answer(
    store: StorePath,
    run: RunName,
    key: Annotated[
        str | None,
        typer.Argument(
            autocompletion=completion.questions, help="The key of the question; --cancel without one ends the run."
        ),
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="The function may be called.")] = False,
    deny: Annotated[bool, typer.Option("--deny", help="The function may not be called.")] = False,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="It may be called with these arguments instead.")
    ] = None,
    result: Annotated[str | None, typer.Option(metavar="TEXT", help="What the function returned.")] = None,
    failed: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The function failed, and the run with it.")
    ] = None,
    run_again: Annotated[
        bool,
        typer.Option("--run-again", "--again", help="The function did nothing, or a stuck run is to be tried again."),
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="The run is to end.")] = False,
    reason: Annotated[str, typer.Option(help="Why, for --deny or --cancel.")] = "",
    by: Annotated[str | None, typer.Option(help="Who answers; by default the user of this OS process.")] = None,
    debug: Debug = False,
) -> None:
    """Post the answer to a question of a run; its driver, now or later, continues with it."""
    at_s = time.time()
    with reporting(debug), opened(store) as runs, Screen() as screen:
        if reason and not (cancel or deny):
            raise typer.BadParameter("there is a reason only to --deny and --cancel", param_hint="--reason")
        outcomes = {
            "approved": approve and Approved(at_s=at_s),
            "modified": arguments is not None and Modified(arguments, at_s=at_s),
            "denied": deny and Denied(reason, at_s=at_s),
            "returned": result is not None and Returned(text=result, at_s=at_s),
            "function_failed": failed is not None and FunctionFailed(text=failed, at_s=at_s),
            "run_again": run_again and RunAgain(at_s=at_s),
            "cancelled": cancel and Cancelled(reason=reason, at_s=at_s),
        }
        answers = [outcome for outcome in outcomes.values() if outcome]
        if len(answers) != 1:
            right = ", ".join([words.split(" ")[0] for words in OPTIONS.values()])
            raise typer.BadParameter(f"there are {len(answers) or 'no'} answers: exactly one of {right} is right")
        if key is None and not cancel:
            raise typer.BadParameter("the key of the question is missing: 'runs show' has it", param_hint="KEY")
        if key is not None:
            _check_right(runs, run, key, answers[0])
        runs.answer(run, {key or "": answers[0]}, by=_user() if by is None else by)
        about = f"to {one_line(key)}" if key else "to the run"
        screen.line(f"posted {answers[0].kind} {about} of {one_line(run)}; its next driver takes it")


def _check_right(runs: Runs, run: str, key: str, outcome: Any) -> None:
    """Check that the kind of an answer fits its open question.

    Raises:
        UsageError: It is of another kind.
    """
    questions = {question.key: question for question in runs.store.load(run, after=None).run.waits}
    right = questions[key].answers if key in questions else ()  # if not, the store tells who has answered it
    if right and outcome.kind not in right:
        named = ", ".join([OPTIONS.get(kind, kind) for kind in right])
        raise UsageError(f"{key!r} is not answered with {OPTIONS[outcome.kind].split(' ')[0]}: {named} would be right")


def _user() -> str:
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return ""


@app.command()
def resume(
    store: StorePath,
    run: RunName,
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    function: Functions = None,
    prompt: NamedPrompt = None,
    setting: Annotated[Many, typer.Option("--set", help="A setting: temperature=0, max_tokens=99. Repeatable.")] = None,
    as_json: JsonLines = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Continue a run of 'ask --store' that was answered or interrupted; ask for approvals at a terminal."""
    lines, shown = LineWriter(as_json), Screen(quiet=quiet)
    with reporting(debug, lines), opened(store) as runs, shown as screen, redirect_stdout(sys.stderr):
        functions, chosen = code_of(function, prompt, trusted=not guesses(model, base_url))
        settings, limits = settings_of(model, base_url, setting)
        if limits != Limits():
            raise typer.BadParameter("the limits of a run stay as they were", param_hint="--set")
        name = header_of(runs.store.load(run, after=None).header).agent
        with connected(model, base_url, screen) as (client, model_name):
            agent = Agent(
                client, functions=functions, name=name, settings=settings, approve=Approver(screen), store=runs
            )
            try:
                show_answer(
                    lambda sink: agent.resume(run, prompt=chosen, sink=sink),
                    screen,
                    lines=lines,
                    model=model_name,
                    command=f"fsm-agent runs answer {shlex.quote(run)} {store_option(store)}",
                )
            except (CallSuspended, KeyboardInterrupt):
                screen.tell(f"to continue: {shlex.join(['fsm-agent', *sys.argv[1:]])}")
                raise


@app.command()
def delete(
    store: StorePath,
    names: Annotated[
        list[str], typer.Argument(metavar="RUN...", autocompletion=completion.runs, help="The names of the runs.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Also those from which a conversation is read.")] = False,
    debug: Debug = False,
) -> None:
    """Delete runs, with their journals, posts and questions."""
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
                    " without it: nothing was deleted; --force deletes it all the same"
                )
        for name in names:
            runs.store.delete(name)
            screen.line(f"deleted {one_line(name)}")


@app.command()
def prune(
    store: StorePath,
    older_than: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Delete those that ended longer ago: 90s, 15m, 12h, 30d or 8w.")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=0, help="Delete all but so many, the newest.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Delete runs that have ended, by age and count; open runs are left alone."""
    with reporting(debug), opened(store) as runs, Screen() as screen:
        if older_than is None and keep is None:
            raise typer.BadParameter("neither age nor count is given: --older-than 30d or --keep 1000 would be right")
        max_age_s = None if older_than is None else _seconds(older_than)
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


def _seconds(span: str) -> float:
    if (found := _SPAN.fullmatch(span)) is None:
        raise typer.BadParameter(f"{span!r} is no span of time: 90s, 15m, 12h, 30d or 8w is", param_hint="--older-than")
    return float(found[1]) * _SECONDS[found[2]]


def _shown_json(reading: RunReading) -> dict[str, Any]:
    trace = reading.trace
    return {
        "run": to_builtins(reading.run),
        "header": {**to_builtins(reading.header.changed(seed=None)), "seed": reading.seed},
        "verdict": reading.verdict,
        "is_sound": reading.is_sound,
        "entries": [
            {
                "n": entry.line.n,
                "key": entry.line.key,
                "outcome": entry.data,
                "steps": to_builtins(entry.line.steps),
                "fence": entry.line.fence,
                "context": None if (use := reading.uses.get(entry.line.key)) is None else to_builtins(use),
                "from": None if trace is None else trace[n].source,
                "to": None if trace is None else trace[n].to,
            }
            for n, entry in enumerate(reading.entries)
        ],
    }
