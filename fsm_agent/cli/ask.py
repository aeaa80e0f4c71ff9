"""The command ``fsm-agent ask``."""

from __future__ import annotations

import re
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer

from fsm_agent.agents.agent import Agent
from fsm_agent.call.result import CallResult
from fsm_agent.cli.json_lines import LineWriter
from fsm_agent.cli.models import (
    EMBEDDED,
    Approve,
    BaseUrl,
    Debug,
    Functions,
    JsonLines,
    Many,
    Model,
    NamedPrompt,
    Quiet,
    SettingsAndLimits,
    code_for,
    connected,
    kept_in,
    settings_of,
)
from fsm_agent.cli.options import attachments_of, dialog_of, pairs, store_option, written_task
from fsm_agent.cli.render import Approver, answer
from fsm_agent.cli.reporting import option, reporting
from fsm_agent.cli.terminal import Screen
from fsm_agent.cli.terminal_hook import overview
from fsm_agent.errors import CallSuspended
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.prompt import Prompt

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)")


def ask(
    task: Annotated[
        str | None,
        typer.Argument(
            help="The question, after piped input; with --prompt, its variable 'task'. '-': piped input alone."
        ),
    ] = None,
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    function: Functions = None,
    prompt: NamedPrompt = None,
    var: Annotated[Many, typer.Option(help="A variable of the prompt, as name=value. Repeatable.")] = None,
    attach: Annotated[
        Many, typer.Option("--attach", "-a", metavar="FILE|URL", help="A picture, a PDF or a text. Repeatable.")
    ] = None,
    system: Annotated[str, typer.Option(help="The system prompt.")] = "",
    output: Annotated[
        str | None, typer.Option(metavar="TYPE", help="The type of the answer, printed as JSON: int, or module:name.")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file with the JSON Schema of the answer, printed as JSON.")
    ] = None,
    extract: Annotated[bool, typer.Option("--extract", "-x", help="Print the first code block of the answer.")] = False,
    usage: Annotated[bool, typer.Option("--usage", "-u", help="Show rounds, tokens and cost on stderr.")] = False,
    setting: SettingsAndLimits = None,
    store: Annotated[
        str | None, typer.Option(help="The file, or its address, to keep the call in, as a run to resume.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="The name of the run; by default a new one.")] = None,
    approve: Approve = False,
    as_json: JsonLines = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Ask a model, and let it call functions."""
    # The output of functions is not the answer.
    lines = LineWriter(as_json)
    with (
        reporting(debug, lines, has_set=True),
        Screen(quiet=quiet) as screen,
        redirect_stdout(sys.stderr),
        kept_in(store) as kept,
    ):
        functions, chosen = code_for(model, base_url, function, prompt, screen, approve=approve)
        settings, limits = settings_of(
            model, base_url, setting, on_cut="accept"
        )  # a cut answer is visible to the person
        kind = _type(output, schema, chosen)
        task = option("task", lambda: written_task(task, is_needed=chosen is None and not var))
        files = option("--attach", attachments_of, attach or ())
        dialog = option("task", dialog_of, task, chosen, option("--var", pairs, var or ()), system, files)
        if run_id is not None and store is None:
            raise typer.BadParameter(
                "expected a store for the run, got none; pass --store runs.db", param_hint="--run-id"
            )
        if extract and (as_json or kind is not str):
            raise typer.BadParameter(
                "expected text to take code from, got JSON; leave --json and the type out", param_hint="--extract"
            )
        with connected(model, base_url, screen) as (client, name):
            agent: Agent[Any, Any] = Agent(
                client,
                functions=functions,
                name="ask",
                output=kind,
                limits=limits,
                settings=settings,
                approve=(lambda _: True) if approve else Approver(screen),
                store=kept,
            )
            run = None if kept is None else run_id or secrets.token_hex(4)
            call = agent.prepare(dialog, run_id=run)
            in_store = "" if store is None else store_option(store)
            command = "" if run is None else f"fsm-agent runs answer {run} {in_store}"
            if store is not None and run_id is None:
                screen.tell(f"run {run} in {in_store.removeprefix('--store ')}")
            asked = _words({"--model": model, "--base-url": base_url, "--prompt": prompt}, function, setting)
            try:
                result = answer(
                    lambda sink: agent.run(call, sink),
                    screen,
                    lines=lines,
                    model=name,
                    command=command,
                    otherwise=_NOT_KEPT,
                    shown=_shown(kind, screen, extract=extract),
                )
            except (CallSuspended, KeyboardInterrupt, typer.Abort):
                if run is not None:
                    screen.tell(f"to continue: fsm-agent runs resume {run} {in_store}{asked}")
                raise
            for line in overview(result) if usage else ():
                typer.echo(line, err=True)


_NOT_KEPT = "the call was not kept; ask again with --approve, or with --store runs.db to answer later"


def _type(output: str | None, schema: str | None, prompt: Prompt | None) -> Any:
    """Return the type of the answer."""
    if output is None and schema is None:
        return str
    if output is not None and schema is not None:
        raise typer.BadParameter("expected one type, got --output as well; leave one out", param_hint="--schema")
    if prompt is not None and (prompt.output is not str or prompt.parser is not None):
        raise typer.BadParameter(
            "expected a prompt without a type, got one with a type of its own; leave the option out",
            param_hint="--output, --schema",
        )
    from fsm_agent.cli.schemas import output_type, schema_type

    return option("--output", output_type, output) if output is not None else option("--schema", schema_type, schema)


def _shown(kind: Any, screen: Screen, *, extract: bool) -> Callable[[CallResult[Any]], str] | None:
    """Return what words a result; None: its text does."""
    if kind is not str:
        from pydantic import TypeAdapter

        return lambda result: TypeAdapter(kind).dump_json(result.output, indent=2).decode()
    return (lambda result: first_block(result.text, screen)) if extract else None


def first_block(text: str, screen: Screen) -> str:
    """Return the contents of the first code block in a text; without one, all of it, and say so."""
    fence, block = "", list[str]()
    for line in text.splitlines():
        found = _FENCE.fullmatch(line)
        if not fence:
            fence = found[1] if found else ""
        elif found and found[1].startswith(fence) and not found[2].strip():
            break
        else:
            block.append(line)
    if not fence:
        screen.tell("the answer has no code block; this is all of it")
        return text
    return "\n".join(block)


def _words(options: Mapping[str, str | None], functions: Many, settings: Many) -> str:
    """Return options as written in a shell, each after a blank; limits are left out, since a run keeps its own."""
    options_set = [(name, value) for name, value in options.items() if value is not None and value != EMBEDDED]
    options_set += [("--function", value) for value in functions or ()]
    options_set += [
        ("--set", value) for value in settings or () if value.partition("=")[0] in Settings.__struct_fields__
    ]
    return "".join([f" {name} {shlex.quote(value)}" for name, value in options_set])
