"""The command ``fsm-agent ask``."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from fsm_agent.agents.agent import Agent
from fsm_agent.call.result import CallResult, CallSuspended
from fsm_agent.cli.options import (
    EMBEDDED,
    Approve,
    BaseUrl,
    Debug,
    Deps,
    Functions,
    JsonLines,
    Many,
    Model,
    NamedPrompt,
    OptionalStore,
    Quiet,
    SettingsAndLimits,
    code_for,
    connected,
    load_deps,
    load_object,
    open_if_named,
    pairs,
    settings_of,
    store_option,
    written_task,
)
from fsm_agent.cli.output import Approver, LineWriter, drive_and_show, option, reporting
from fsm_agent.cli.terminal import Screen
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.output import Output
from fsm_agent.prompts.prompt import Prompt

NOT_KEPT = "the call was not kept; ask again with --approve, or with --store runs.db to answer later"
_PLAIN_TYPES: Mapping[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


def ask(
    task: Annotated[
        str | None,
        typer.Argument(
            help="The question, added to piped input; '-' for piped input alone. With --prompt, its variable 'task'."
        ),
    ] = None,
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    function: Functions = None,
    prompt: NamedPrompt = None,
    var: Annotated[Many, typer.Option(metavar="NAME=VALUE", help="A variable of the prompt. Repeatable.")] = None,
    system: Annotated[str, typer.Option(metavar="TEXT", help="The system prompt.")] = "",
    output: Annotated[
        str | None, typer.Option(metavar="TYPE", help="The type of the answer, printed as JSON: int, or module:name.")
    ] = None,
    setting: SettingsAndLimits = None,
    deps: Deps = None,
    store: OptionalStore = None,
    run_id: Annotated[
        str | None, typer.Option(metavar="RUN", help="The name of the run; by default a new one.")
    ] = None,
    approve: Approve = False,
    as_json: JsonLines = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Ask a model, and let it call functions."""
    lines = LineWriter(as_json)
    with reporting(debug, lines), Screen(quiet=quiet) as screen, open_if_named(store) as runs:
        functions, chosen = code_for(model, base_url, function, prompt, screen, approve=approve)
        settings, limits = settings_of(model, base_url, setting, on_cut="accept")  # the person sees that it was cut
        kind = str if output is None else option("--output", _output_type, output, chosen)
        asked = _asked(task, chosen, var)
        if run_id is not None and store is None:
            raise typer.BadParameter(
                "expected a store for the run, got none; pass --store runs.db", param_hint="--run-id"
            )
        with connected(model, base_url, screen) as (client, name):
            agent: Agent[Any, Any] = Agent(
                client,
                functions=functions,
                name="ask",
                system=system,
                output=kind,
                limits=limits,
                settings=settings,
                approve=(lambda _: True) if approve else Approver(screen),
                store=runs,
            )
            given = load_deps(deps, [agent])
            run = None if runs is None else run_id or secrets.token_hex(4)
            call = agent.prepare(asked, run_id=run, deps=given)
            where = "" if store is None else store_option(store)
            if store is not None and run_id is None:
                screen.tell(f"run {run} in {where.removeprefix('--store ')}")
            try:
                drive_and_show(
                    lambda sink: agent.run(call, sink),
                    screen,
                    lines,
                    model=name,
                    command="" if run is None else f"fsm-agent runs answer {shlex.quote(run)} {where}",
                    otherwise=NOT_KEPT,
                    shown=None if output is None else _as_json_of(kind),
                )
            except (CallSuspended, KeyboardInterrupt, typer.Abort):
                if run is not None:
                    words = _words(
                        {"--model": model, "--base-url": base_url, "--prompt": prompt, "--deps": deps},
                        function,
                        setting,
                    )
                    screen.tell(f"to continue: fsm-agent runs resume {shlex.quote(run)} {where}{words}")
                raise


def _asked(task: str | None, prompt: Prompt | None, var: Many) -> Any:
    """Return the task: a text, or a prompt with its variables."""
    task = option("task", lambda: written_task(task, is_needed=prompt is None))
    if prompt is None:
        for name in option("--var", pairs, var or ()):
            raise typer.BadParameter(f"expected a prompt with the variable {name!r}, got none", param_hint="--var")
        if not task:
            raise typer.BadParameter("expected a task, got none; pass it as text", param_hint="task")
        return task
    values = option("--var", pairs, [*([] if task is None else [f"task={task}"]), *(var or ())])
    return option("--prompt", lambda: prompt(**values))


def _output_type(named: str, prompt: Prompt | None) -> Any:
    """Return the type named by ``module:name``, or ``str``, ``int``, ``float`` or ``bool``."""
    if prompt is not None and (prompt.output is not str or prompt.parser is not None):
        raise typer.BadParameter(
            "expected a prompt without a type, got one with a type of its own; leave --output out",
            param_hint="--output",
        )
    found = _PLAIN_TYPES.get(named) or load_object(named, "output")
    Output(found)  # refuses types that JSON cannot represent
    return found


def _as_json_of(kind: Any) -> Callable[[CallResult[Any]], str]:
    """Return a function that serializes a result as JSON."""
    from pydantic import TypeAdapter

    return lambda result: TypeAdapter(kind).dump_json(result.output, indent=2).decode()


def _words(options: Mapping[str, str | None], functions: Many, settings: Many) -> str:
    """Return options for a shell, each with a leading space.  Limits are omitted, because a run keeps its own."""
    options_set = [(name, value) for name, value in options.items() if value is not None and value != EMBEDDED]
    options_set += [("--function", value) for value in functions or ()]
    options_set += [
        ("--set", value) for value in settings or () if value.partition("=")[0] in Settings.__struct_fields__
    ]
    return "".join([f" {name} {shlex.quote(value)}" for name, value in options_set])
