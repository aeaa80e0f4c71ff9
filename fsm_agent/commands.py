"""Which commands does ``fsm-agent`` have, and what do they do?"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stdout
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic_core import to_jsonable_python

from fsm_agent import __version__
from fsm_agent.agents import Agent
from fsm_agent.arguments import dialog_of, load_function, load_named_prompt, pairs, settings_and_limits
from fsm_agent.call import AgentCall
from fsm_agent.client import HttpClient, client_for
from fsm_agent.demo import Finding, build_demo, write_diagrams
from fsm_agent.demo_screen import DemoScreen, report, table
from fsm_agent.diagrams import lifecycle, render, write
from fsm_agent.errors import ConfigError, FsmAgentError, ProviderError, UsageError
from fsm_agent.events import ReplyCompleted, TextDelta
from fsm_agent.messages import FunctionCall
from fsm_agent.providers.catalog import split_model
from fsm_agent.terminal import Screen, discard_output, error_line, plain, shown_call

T = TypeVar("T")

FAILED, INTERRUPTED, BROKEN_PIPE = 1, 130, 141  # the latter two: 128 + SIGINT, 128 + SIGPIPE, as shells count
EMBEDDED = "local:"
EMBEDDED_SETTINGS = {"temperature": "0", "seed": "1", "max_tokens": "256"}  # a small model may find no end

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


class Format(StrEnum):
    """How a diagram is drawn."""

    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"
    PNG = "png"


Model = Annotated[str, typer.Option("--model", "-m", help="provider:model; local: is the small embedded one.")]
BaseUrl = Annotated[str | None, typer.Option(help="Where the provider listens, if not at its usual address.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]
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
    """Show a real model at work: functions, types, a parse error, log probabilities."""
    with reporting(debug):
        findings: list[Finding] = []
        with Screen(steps=as_json) as screen, _connected(model, base_url, screen) as (client, name):
            is_embedded = _is_embedded(model, base_url)
            shown = DemoScreen(screen, as_json=as_json)
            shown.introduce(name)
            with closing(build_demo(client, is_embedded=is_embedded).play()) as items:
                for item in items:
                    shown.show(item)
                    if isinstance(item, Finding):
                        findings.append(item)
            paths = write_diagrams(findings, output)
            if as_json:
                screen.line(_json(report(name, findings, paths)))
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
    function: Annotated[Many, typer.Option(help="What the model may call, as module:name. Repeatable.")] = None,
    prompt: Annotated[str | None, typer.Option(help="A prompt, as root/name or a file that ends in .jinja.")] = None,
    var: Annotated[Many, typer.Option(help="A variable of the prompt, as name=value. Repeatable.")] = None,
    system: Annotated[str, typer.Option(help="The system prompt.")] = "",
    setting: Annotated[
        Many, typer.Option("--set", help="A setting or limit: temperature=0, max_tokens=99, rounds=3. Repeatable.")
    ] = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but the answer.")] = False,
    debug: Debug = False,
) -> None:
    """Ask a model, and let it call functions."""
    # What functions print is not the answer.
    with reporting(debug), Screen(quiet=quiet) as screen, redirect_stdout(sys.stderr):
        functions = [_taken("--function", load_function, named) for named in function or ()]
        chosen = None if prompt is None else _taken("--prompt", load_named_prompt, prompt)
        said = {**(EMBEDDED_SETTINGS if _is_embedded(model, base_url) else {}), **_taken("--set", pairs, setting or ())}
        settings, limits = _taken("--set", settings_and_limits, said)
        dialog = _taken("task", dialog_of, task, chosen, _taken("--var", pairs, var or ()), system)
        with _connected(model, base_url, screen) as (client, name):
            agent = Agent(
                client,
                functions=functions,
                name="ask",
                limits=limits,
                settings=settings,
                approve=partial(_approve, screen),
            )
            _answer(agent, agent.seed(dialog), screen, json_of=name if as_json else None)


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
    from fsm_agent import bench as costs
    from fsm_agent.bench_screen import as_json, measured, picture

    with reporting(debug):
        name, asked = "", list[costs.Asked]()
        if model is not None:
            with Screen() as screen, _connected(model, base_url, screen) as (client, name):
                screen.standing.state = f"asking {plain(name)}"
                said = EMBEDDED_SETTINGS if _is_embedded(model, base_url) else {}
                asked += costs.ask(client, settings_and_limits(said)[0], requests)
        typer.echo("measuring; this takes ten seconds", err=True)
        report = measured(runs, model=name, asked=asked)
        with Screen(quiet=True) as screen:
            screen.show(picture(report))
        if json_file is not None:
            json_file.write_text(_json(as_json(report)))


@contextmanager
def reporting(debug: bool) -> Iterator[None]:
    """Make an exit code of whatever comes, and a paragraph on stderr of what went wrong.

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
    cause = error.__cause__
    if isinstance(cause, ProviderError):
        return f"{error}{str(cause).removeprefix(cause.message)}"
    if isinstance(error, FsmAgentError):
        return str(error)
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    return f"{type(error).__name__}: {error} (this is a bug of fsm-agent; --debug shows where it is)"


def _taken(option: str, take: Callable[..., T], *words: Any) -> T:
    """What ``take`` makes of the words of an option.

    Raises:
        ConfigError: What they name is not there.
        typer.BadParameter: They make no sense.
    """
    try:
        return take(*words)
    except ConfigError:
        raise
    except UsageError as error:
        raise typer.BadParameter(plain(str(error)), param_hint=option) from error


def _is_embedded(model: str, base_url: str | None) -> bool:
    return base_url is None and split_model(model)[0].is_embedded


@contextmanager
def _connected(model: str, base_url: str | None, screen: Screen) -> Iterator[tuple[HttpClient, str]]:
    """A client, and what its model is called."""
    with client_for(model, base_url=base_url) as client:
        screen.resume()
        is_embedded = _is_embedded(model, base_url)
        yield client, screen.start_embedded(split_model(model)[1]) if is_embedded else client.name


def _approve(screen: Screen, call: FunctionCall) -> bool | None:
    """Ask whoever sits at the terminal; None: nobody does."""
    if not sys.stdin.isatty():
        return None
    screen.pause()
    return typer.confirm(f"May the model call {shown_call(call)}?", err=True)


def _answer(agent: Agent, call: AgentCall, screen: Screen, *, json_of: str | None) -> None:
    """Drive the call, and say what comes of it: on a terminal as it comes, elsewhere when it is sure.

    Args:
        agent: Whose call it is.
        call: The call.
        screen: Where it is said.
        json_of: The model's name, if it is to be said as JSON.

    Raises:
        CallFailed: There is no answer.
        CallSuspended: The call waits for somebody.
    """
    is_live = screen.out.is_terminal and json_of is None
    events: Any = agent.stream(call)
    try:
        with closing(events):
            for event in events:
                screen.take(event)
                if is_live and isinstance(event, TextDelta):
                    screen.write(event.text)
                elif is_live and isinstance(event, ReplyCompleted):
                    screen.end_line()
        result = call.result()
    finally:
        screen.pause()
        if json_of is not None and call.record.turn:
            screen.line(_json(_call_json(json_of, call)))
    if json_of is None and not is_live:
        screen.line(result.text)
    if call.record.reply and call.record.reply.finish == "length":
        screen.tell("the answer was cut off at the token limit; --set max_tokens=… sets another")


def _call_json(model: str, call: AgentCall) -> dict[str, Any]:
    r = call.record
    return {
        "model": model,
        "state": str(r.state),
        "reason": str(r.ending.reason) if r.ending else None,
        "detail": r.ending.detail or None if r.ending else None,
        "output": to_jsonable_python(call.output, serialize_unknown=True),
        "text": r.reply.message.text if r.reply else None,
        "finish": r.reply.finish if r.reply else None,
        "usage": to_jsonable_python(r.usage),
        "rounds": r.rounds,
        "states": [str(step.to) for step in r.trace],
        "waits_for": [effect.key for effect in call.effects],
        "function_calls": [
            {"name": f.name, "arguments": f.arguments, "result": f.result, "error": f.error} for f in r.function_calls
        ],
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=2)  # in ASCII: what models say reaches no terminal as it is
