"""The commands of ``fsm-agent``.

More than 300 lines, because the options of a command are the parameters of its function.
"""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from fsm_agent import __version__
from fsm_agent._internal.plain_text import plain
from fsm_agent.agents.agent import Agent
from fsm_agent.cli.agents import commands as agents
from fsm_agent.cli.bench.commands import app as bench_commands
from fsm_agent.cli.chat import Chat, chat_lines, converse
from fsm_agent.cli.demo.approval import Reach
from fsm_agent.cli.demo.demo import SETTINGS, build_demo
from fsm_agent.cli.demo.items import Finding
from fsm_agent.cli.demo.screen import DemoScreen
from fsm_agent.cli.drawings import AsFormat, Output, draw
from fsm_agent.cli.flows import app as flows
from fsm_agent.cli.local_models import app as local_models
from fsm_agent.cli.models import (
    EMBEDDED,
    EMBEDDED_SETTINGS,
    GUESSES,
    Approve,
    BaseUrl,
    Debug,
    Functions,
    Json,
    Many,
    Model,
    NamedPrompt,
    Quiet,
    code_of,
    connected,
    guesses,
    is_embedded,
    settings_of,
)
from fsm_agent.cli.options import dialog_of, pairs, settings_and_limits, written_task
from fsm_agent.cli.prompts import app as prompts
from fsm_agent.cli.render import Approver, answer, json_text
from fsm_agent.cli.reporting import FAILED, option, reporting
from fsm_agent.cli.runs import commands as runs
from fsm_agent.cli.runs.reading import opened
from fsm_agent.cli.runs.worker import worker
from fsm_agent.cli.terminal import Screen, error_line
from fsm_agent.clients.local.server import local_server
from fsm_agent.diagrams.diagram import lifecycle
from fsm_agent.errors import CallSuspended
from fsm_agent.messages.settings import Settings
from fsm_agent.providers.catalog import split_model
from fsm_agent.store.memory import MemoryStore
from fsm_agent.store.runs import Runs

_EMBEDDED_SYSTEM = "You are a helpful assistant. Answer in one or two sentences."  # else a small model rambles

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(runs.app, name="runs")
app.add_typer(prompts, name="prompts")
app.add_typer(agents.app, name="agents")
app.add_typer(local_models, name="models")
app.add_typer(flows, name="flows")
app.add_typer(bench_commands, name="bench")
app.command()(worker)


def _version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"fsm-agent {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")]


@app.callback()
def fsm_agent(version: Version = False) -> None:
    """One agent call is one explicit finite-state machine."""


@app.command()
def demo(
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    output: Annotated[Path | None, typer.Option(help="Where the diagram goes: a file or a directory.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a real model at work: functions, types, a parse error, log probabilities, approval."""
    with reporting(debug):
        findings: list[Finding] = []
        with Screen(steps=as_json) as screen, connected(model, base_url, screen) as (client, name):
            demo_screen = DemoScreen(screen, as_json=as_json)
            demo_screen.introduce(name)
            reach = _reach(model, base_url)
            with closing(build_demo(client, is_embedded=is_embedded(model, base_url), reach=reach).play()) as items:
                for item in items:
                    demo_screen.show(item)
                    if isinstance(item, Finding):
                        findings.append(item)
            demo_screen.finish(name, findings, output)
        if problems := [finding.problem for finding in findings if finding.problem]:
            error_line(f"{len(problems)} of {len(findings)} parts failed: {'; '.join(problems)}")
            raise typer.Exit(FAILED)


@app.command()
def ask(
    task: Annotated[
        str | None, typer.Argument(help="What to ask; of a prompt, its variable 'task'. '-': what is piped in.")
    ] = None,
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    function: Functions = None,
    prompt: NamedPrompt = None,
    var: Annotated[Many, typer.Option(help="A variable of the prompt, as name=value. Repeatable.")] = None,
    system: Annotated[str, typer.Option(help="The system prompt.")] = "",
    setting: Annotated[
        Many, typer.Option("--set", help="A setting or limit: temperature=0, max_tokens=99, rounds=3. Repeatable.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="The file to keep the call in, as a run that 'runs resume' goes on with.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="The name of the run; by default a new one.")] = None,
    approve: Approve = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Ask a model, and let it call functions."""
    # The output of functions is not the answer.
    with reporting(debug), Screen(quiet=quiet) as screen, redirect_stdout(sys.stderr):
        is_guess = guesses(model, base_url)
        functions, chosen = code_of(function, prompt, trusted=approve or not is_guess)
        if is_guess and (functions or (chosen is not None and chosen.offers)):
            screen.tell(GUESSES)
        settings, limits = settings_of(model, base_url, setting, on_cut="accept")  # the person sees that it was cut
        task = written_task(task, is_needed=chosen is None and not var)
        dialog = option("task", dialog_of, task, chosen, option("--var", pairs, var or ()), system)
        if run_id is not None and store is None:
            raise typer.BadParameter("it names a run in a store: --store runs.db", param_hint="--run-id")
        with connected(model, base_url, screen) as (client, name), _kept(store) as kept:
            agent = Agent(
                client,
                functions=functions,
                name="ask",
                limits=limits,
                settings=settings,
                approve=(lambda _: True) if approve else Approver(screen),
                store=kept,
            )
            run = None if kept is None else run_id or secrets.token_hex(4)
            call = agent.seed(dialog, run_id=run)
            command = "" if run is None else f"fsm-agent runs answer {run} --store {shlex.quote(str(store))}"
            if run is not None and run_id is None:
                screen.tell(f"run {run} in {store}")
            asked = _words({"--model": model, "--base-url": base_url, "--prompt": prompt}, function, setting)
            try:
                answer(lambda sink: agent.run(call, sink), screen, json_of=name if as_json else None, command=command)
            except (CallSuspended, KeyboardInterrupt) as end:
                if run is not None:
                    screen.tell(
                        f"it goes on with: fsm-agent runs resume {run} --store {shlex.quote(str(store))}{asked}"
                    )
                elif isinstance(end, CallSuspended):
                    screen.tell("it is kept nowhere: ask again with --approve, or with --store runs.db to answer later")
                raise


@app.command()
def chat(
    name: Annotated[str, typer.Argument(help="The conversation, which --store keeps under this name.")] = "chat",
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    function: Functions = None,
    system: Annotated[str | None, typer.Option(help="The system prompt.")] = None,
    setting: Annotated[
        Many, typer.Option("--set", help="A setting or limit: temperature=0, max_tokens=99, rounds=3. Repeatable.")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="The file to keep the conversation in; by default, none.")] = None,
    approve: Approve = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Talk with a model: a line is a turn. /help shows the commands."""
    with reporting(debug), Screen(quiet=quiet) as screen, redirect_stdout(sys.stderr):
        is_guess = guesses(model, base_url)
        functions, _ = code_of(function, None, trusted=approve or not is_guess)
        if is_guess and functions:
            screen.tell(GUESSES)
        settings, limits = settings_of(model, base_url, setting, on_cut="accept")
        with connected(model, base_url, screen) as (client, _), _kept(store) as kept:
            agent = Agent(
                client,
                functions=functions,
                name="chat",
                system=_EMBEDDED_SYSTEM if system is None and is_embedded(model, base_url) else system or "",
                limits=limits,
                settings=settings,
                approve=(lambda _: True) if approve else Approver(screen),
                store=Runs(MemoryStore()) if kept is None else kept,
            )
            talk = Chat(agent, name, screen, "" if store is None else str(store))
            try:
                converse(talk, chat_lines(screen))
            finally:
                if store is not None:
                    screen.tell(f"to go on: {shlex.join(['fsm-agent', *sys.argv[1:]])}")
        if talk.has_failed and not sys.stdin.isatty():
            raise typer.Exit(FAILED)


@app.command()
def diagram(format: AsFormat = None, output: Output = None, debug: Debug = False) -> None:
    """Draw the states of an agent call."""
    with reporting(debug):
        draw(lifecycle(), format, output)


@bench_commands.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Ask this model, too, as provider:model.")] = None,
    base_url: BaseUrl = None,
    runs: Annotated[int, typer.Option(min=1, help="How many batches of each work are measured.")] = 15,
    requests: Annotated[int, typer.Option(min=1, help="How often --model is asked.")] = 5,
    json_file: Annotated[
        Path | None, typer.Option("--json", dir_okay=False, help="Write all samples into this file.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Measure what a call costs on this machine, beside the same work by hand."""
    if context.invoked_subcommand:
        return
    from fsm_agent.cli.bench import bench as costs
    from fsm_agent.cli.bench.screen import as_json, measured, picture

    with reporting(debug):
        name, measurements = "", list[costs.RequestTiming]()
        if model is not None:
            with Screen() as screen, connected(model, base_url, screen) as (client, name):
                screen.standing.state = f"asking {plain(name)}"
                options = EMBEDDED_SETTINGS if is_embedded(model, base_url) else {}
                measurements += costs.ask(client, settings_and_limits(options)[0], requests)
        typer.echo("measuring; this takes ten seconds", err=True)
        report = measured(runs, model=name, timings=measurements)
        with Screen(quiet=True) as screen:
            screen.show(picture(report))
        if json_file is not None:
            json_file.write_text(json_text(as_json(report)))


def _reach(model: str, base_url: str | None) -> Reach:
    """Return how another process reaches this model; the embedded one, through the server that runs already."""
    if not is_embedded(model, base_url):
        return Reach(options=("--model", model, *(("--base-url", base_url) if base_url else ())))
    server = local_server(split_model(model)[1] or None)
    settings = [word for name, value in SETTINGS["eraser"].items() for word in ("--set", f"{name}={value}")]
    return Reach(
        options=("--model", f"llamacpp:{server.model}", "--base-url", server.base_url, *settings),
        environment={"LLAMA_API_KEY": server.api_key},
    )


def _words(options: Mapping[str, str | None], functions: Many, settings: Many) -> str:
    """Return options as they are written in a shell, a blank before each; the limits of a run stay as they were."""
    given = [(name, value) for name, value in options.items() if value is not None and value != EMBEDDED]
    given += [("--function", value) for value in functions or ()]
    given += [("--set", value) for value in settings or () if value.partition("=")[0] in Settings.__struct_fields__]
    return "".join([f" {name} {shlex.quote(value)}" for name, value in given])


def _kept(store: Path | None) -> AbstractContextManager[Runs | None]:
    return nullcontext() if store is None else opened(store, must_exist=False)
