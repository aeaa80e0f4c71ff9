"""The commands of ``fsm-agent``.

More than 300 lines, because the options of a command are the parameters of its function.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from fsm_agent import __version__
from fsm_agent._internal.plain_text import plain
from fsm_agent.agents.agent import Agent
from fsm_agent.cli.demo.approval import Reach
from fsm_agent.cli.demo.demo import SETTINGS, build_demo, write_diagrams
from fsm_agent.cli.demo.items import Finding
from fsm_agent.cli.demo.screen import DemoScreen, report, table
from fsm_agent.cli.options import dialog_of, load_function, load_named_prompt, pairs, settings_and_limits
from fsm_agent.cli.render import Approver, answer, json_text, waiting_calls
from fsm_agent.cli.snapshot_files import read_snapshot
from fsm_agent.cli.terminal import Screen, discard_output, error_line
from fsm_agent.clients.client import HttpClient, client_for
from fsm_agent.clients.local.server import local_server
from fsm_agent.diagrams.diagram import lifecycle, render, write
from fsm_agent.errors import ConfigError, FsmAgentError, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.lifecycle.effects import Settings
from fsm_agent.lifecycle.limits import Limits
from fsm_agent.lifecycle.outcomes import Approved, Denied
from fsm_agent.messages.message import FunctionCall
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.providers.catalog import split_model

T = TypeVar("T")

FAILED, INTERRUPTED, BROKEN_PIPE = 1, 130, 141  # the latter two: 128 + SIGINT, 128 + SIGPIPE, as shells count
EMBEDDED = "local:"
EMBEDDED_SETTINGS = {"temperature": "0", "seed": "1", "max_tokens": "256"}  # a small model may find no end

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


class Format(StrEnum):
    """The format of a diagram."""

    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"
    PNG = "png"


Model = Annotated[str, typer.Option("--model", "-m", help="provider:model; local: is the small embedded one.")]
BaseUrl = Annotated[str | None, typer.Option(help="Where the provider listens, if not at its usual address.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]
Functions = Annotated[
    list[str] | None, typer.Option("--function", help="What the model may call, as module:name. Repeatable.")
]
NamedPrompt = Annotated[
    str | None, typer.Option("--prompt", help="A prompt, as root/name or a file that ends in .jinja.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but the answer.")]
Many = list[str] | None


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
        with Screen(steps=as_json) as screen, _connected(model, base_url, screen) as (client, name):
            is_embedded = _is_embedded(model, base_url)
            demo_screen = DemoScreen(screen, as_json=as_json)
            demo_screen.introduce(name)
            reach = _reach(model, base_url)
            with closing(build_demo(client, is_embedded=is_embedded, reach=reach).play()) as items:
                for item in items:
                    demo_screen.show(item)
                    if isinstance(item, Finding):
                        findings.append(item)
            paths = write_diagrams(findings, output)
            if as_json:
                screen.line(json_text(report(name, findings, paths)))
            else:
                screen.show(table(findings))
                for path in paths:
                    screen.line(f"diagram written to {path}")
        if problems := [finding.problem for finding in findings if finding.problem]:
            error_line(f"{len(problems)} of {len(findings)} parts failed: {'; '.join(problems)}")
            raise typer.Exit(FAILED)


@app.command()
def ask(
    task: Annotated[str | None, typer.Argument(help="What to ask; of a prompt, its variable 'task'.")] = None,
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    function: Functions = None,
    prompt: NamedPrompt = None,
    var: Annotated[Many, typer.Option(help="A variable of the prompt, as name=value. Repeatable.")] = None,
    system: Annotated[str, typer.Option(help="The system prompt.")] = "",
    setting: Annotated[
        Many, typer.Option("--set", help="A setting or limit: temperature=0, max_tokens=99, rounds=3. Repeatable.")
    ] = None,
    snapshot: Annotated[
        Path | None, typer.Option(help="The file to keep the call in, which 'resume' goes on with.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Ask a model, and let it call functions."""
    # The output of functions is not the answer.
    with reporting(debug), Screen(quiet=quiet) as screen, redirect_stdout(sys.stderr):
        functions, chosen = _code(function, prompt)
        settings, limits = _settings(model, base_url, setting, on_cut="accept")  # the person sees that it was cut
        dialog = _option("task", dialog_of, task, chosen, _option("--var", pairs, var or ()), system)
        with _connected(model, base_url, screen) as (client, name):
            agent = Agent(
                client, functions=functions, name="ask", limits=limits, settings=settings, approve=Approver(screen)
            )
            answer(agent, agent.seed(dialog), screen, json_of=name if as_json else None, kept_in=snapshot)


@app.command()
def resume(
    snapshot: Annotated[Path, typer.Argument(help="The file; how far the call gets now is kept in it, too.")],
    approve: Annotated[
        bool | None, typer.Option("--approve/--deny", help="Whether the functions that wait for it may be called.")
    ] = None,
    only: Annotated[
        Many, typer.Option(help="The id of a call that --approve or --deny settles; by default all. Repeatable.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why not, for the model.")] = "",
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    function: Functions = None,
    prompt: NamedPrompt = None,
    setting: Annotated[Many, typer.Option("--set", help="A setting: temperature=0, max_tokens=99. Repeatable.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Go on with a call of 'ask --snapshot' that waits for approval, or was interrupted."""
    with reporting(debug), Screen(quiet=quiet) as screen, redirect_stdout(sys.stderr):
        functions, chosen = _code(function, prompt)
        settings, limits = _settings(model, base_url, setting)
        if limits != Limits():
            raise typer.BadParameter("the limits of a call stay as they were", param_hint="--set")
        if reason and approve is not False:
            raise typer.BadParameter("there is a reason only to --deny", param_hint="--reason")
        if only and approve is None:
            raise typer.BadParameter("it goes with --approve or --deny", param_hint="--only")
        document = read_snapshot(snapshot)
        ruling = (
            None if approve is None else Approved(at_s=time.time()) if approve else Denied(reason, at_s=time.time())
        )
        with _connected(model, base_url, screen) as (client, name):
            approver = Approver(screen)
            agent = Agent(client, functions=functions, name="ask", settings=settings, approve=approver)
            call = agent.restore(document, chosen)
            waiting = waiting_calls(call)
            if ruling and not waiting:
                screen.tell(f"nothing waits for approval: the call is in {call.state}")
            if ruling:
                approver.settle(_only(waiting, only), ruling)
            answer(agent, call, screen, json_of=name if as_json else None, kept_in=snapshot)


@app.command()
def diagram(
    format: Annotated[Format | None, typer.Option(help="By default what --output ends in, or mermaid.")] = None,
    output: Annotated[Path | None, typer.Option(help="The file; by default stdout.")] = None,
    debug: Debug = False,
) -> None:
    """Draw the states of an agent call."""
    with reporting(debug):
        if output is not None:
            path = write(lifecycle(), output, format and format.value)
            with Screen() as screen:
                screen.tell(f"diagram written to {path}")
            return
        if format is Format.PNG and sys.stdout.isatty():
            raise typer.BadParameter("png is not for a terminal: give a file with --output", param_hint="--format")
        drawn = render(lifecycle(), format or Format.MERMAID)
        typer.echo(drawn, nl=False)


@app.command()
def bench(
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
    from fsm_agent.cli.bench import bench as costs
    from fsm_agent.cli.bench.screen import as_json, measured, picture

    with reporting(debug):
        name, measurements = "", list[costs.RequestTiming]()
        if model is not None:
            with Screen() as screen, _connected(model, base_url, screen) as (client, name):
                screen.standing.state = f"asking {plain(name)}"
                options = EMBEDDED_SETTINGS if _is_embedded(model, base_url) else {}
                measurements += costs.ask(client, settings_and_limits(options)[0], requests)
        typer.echo("measuring; this takes ten seconds", err=True)
        report = measured(runs, model=name, timings=measurements)
        with Screen(quiet=True) as screen:
            screen.show(picture(report))
        if json_file is not None:
            json_file.write_text(json_text(as_json(report)))


@contextmanager
def reporting(debug: bool) -> Iterator[None]:
    """Turn any exception into an exit code, and into a paragraph on stderr if it is an error.

    Raises:
        typer.Exit: Something went wrong.
        typer.BadParameter: The command line is wrong.
    """
    try:
        yield
    except (typer.Exit, typer.BadParameter):
        raise
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(BROKEN_PIPE) from None
    except (KeyboardInterrupt, typer.Abort):
        error_line("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if debug:
            traceback.print_exc()
        error_line(_explained(error))
        raise typer.Exit(FAILED) from None


def _explained(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return _in_options(str(error))
    if isinstance(error, FsmAgentError):
        return str(error)
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    return f"{type(error).__name__}: {error} (this is a bug of fsm-agent; --debug shows where it is)"


def _in_options(message: str) -> str:
    """Return a message of the library in the words of the command line, which has no option for a key."""
    return message.replace("base_url=", "--base-url ").replace(", or give api_key", "")


def _option(option: str, take: Callable[..., T], *words: Any) -> T:
    """Return the values of an option as ``take`` converts them.

    Raises:
        ConfigError: An object that they name does not exist.
        typer.BadParameter: They are invalid.
    """
    try:
        return take(*words)
    except ConfigError:
        raise
    except UsageError as error:
        raise typer.BadParameter(plain(str(error)), param_hint=option) from error


def _code(functions: list[str] | None, prompt: str | None) -> tuple[list[Function], Prompt | None]:
    """Return the functions and the prompt that the options name.

    A user who names a function in a command has chosen it: only one that requires approval needs a confirmation.
    """
    named = [_option("--function", load_function, function) for function in functions or ()]
    chosen = None if prompt is None else _option("--prompt", load_named_prompt, prompt)
    if chosen is not None and chosen.offers:
        chosen = chosen.extend(functions=[_chosen(function) for function in chosen.offers])
    return [_chosen(function) for function in named], chosen


def _chosen(function: Function) -> Function:
    return Function.of(function, needs_approval=False) if function.needs_approval is None else function


def _only(waiting: list[FunctionCall], ids: Many) -> list[FunctionCall]:
    """Return the calls with these ids; without ids, all of them.

    Raises:
        typer.BadParameter: No call with such an id is waiting.
    """
    waiting_ids = [f.id for f in waiting]
    if unknown := [id for id in ids or () if id not in waiting_ids]:
        raise typer.BadParameter(
            f"{unknown[0]!r} does not wait; {', '.join(waiting_ids) or 'none'} would be right", param_hint="--only"
        )
    return [f for f in waiting if not ids or f.id in ids]


def _settings(model: str, base_url: str | None, options: Many, **defaults: str) -> tuple[Settings, Limits]:
    """Return the values of ``--set``, over those that the embedded model needs and the defaults of a command."""
    if _is_embedded(model, base_url):
        defaults |= EMBEDDED_SETTINGS
    return _option("--set", settings_and_limits, {**defaults, **_option("--set", pairs, options or ())})


def _reach(model: str, base_url: str | None) -> Reach:
    """Return how another process reaches this model; the embedded one, through the server that runs already."""
    if not _is_embedded(model, base_url):
        return Reach(options=("--model", model, *(("--base-url", base_url) if base_url else ())))
    server = local_server(split_model(model)[1] or None)
    settings = [word for name, value in SETTINGS["eraser"].items() for word in ("--set", f"{name}={value}")]
    return Reach(
        options=("--model", f"llamacpp:{server.model}", "--base-url", server.base_url, *settings),
        environment={"LLAMA_API_KEY": server.api_key},
    )


def _is_embedded(model: str, base_url: str | None) -> bool:
    return base_url is None and split_model(model)[0].is_embedded


@contextmanager
def _connected(model: str, base_url: str | None, screen: Screen) -> Iterator[tuple[HttpClient, str]]:
    """Yield a client and the name of its model."""
    with client_for(model, base_url=base_url) as client:
        screen.resume()
        is_embedded = _is_embedded(model, base_url)
        yield client, screen.start_embedded(split_model(model)[1]) if is_embedded else client.name
