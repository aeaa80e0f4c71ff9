"""The command ``fsm-agent ask``."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Annotated

import typer

from fsm_agent.agents.agent import Agent
from fsm_agent.cli.json_lines import LineWriter
from fsm_agent.cli.models import (
    EMBEDDED,
    GUESSES,
    Approve,
    BaseUrl,
    Debug,
    Functions,
    JsonLines,
    Many,
    Model,
    NamedPrompt,
    Quiet,
    code_of,
    connected,
    guesses,
    kept_in,
    settings_of,
)
from fsm_agent.cli.options import dialog_of, pairs, store_option, written_task
from fsm_agent.cli.render import Approver, answer
from fsm_agent.cli.reporting import option, reporting
from fsm_agent.cli.terminal import Screen
from fsm_agent.errors import CallSuspended
from fsm_agent.messages.settings import Settings


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
    with reporting(debug, lines, has_set=True), Screen(quiet=quiet) as screen, redirect_stdout(sys.stderr):
        is_guess = guesses(model, base_url)
        functions, chosen = code_of(function, prompt, trusted=approve or not is_guess)
        if is_guess and (functions or (chosen is not None and chosen.offers)):
            screen.tell(GUESSES)
        settings, limits = settings_of(
            model, base_url, setting, on_cut="accept"
        )  # a cut answer is visible to the person
        task = written_task(task, is_needed=chosen is None and not var)
        dialog = option("task", dialog_of, task, chosen, option("--var", pairs, var or ()), system)
        if run_id is not None and store is None:
            raise typer.BadParameter("it names a run in a store: --store runs.db", param_hint="--run-id")
        with connected(model, base_url, screen) as (client, name), kept_in(store) as kept:
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
            in_store = "" if store is None else store_option(store)
            call = agent.seed(dialog, run_id=run)
            command = "" if run is None else f"fsm-agent runs answer {run} {in_store}"
            if run is not None and run_id is None:
                screen.tell(f"run {run} in {in_store.removeprefix('--store ')}")
            asked = _words({"--model": model, "--base-url": base_url, "--prompt": prompt}, function, setting)
            try:
                answer(
                    lambda sink: agent.run(call, sink),
                    screen,
                    lines=lines,
                    model=name,
                    command=command,
                    otherwise=_NOT_KEPT,
                )
            except (CallSuspended, KeyboardInterrupt):
                if run is not None:
                    screen.tell(f"to continue: fsm-agent runs resume {run} {in_store}{asked}")
                raise


_NOT_KEPT = "the call was not kept: ask again with --approve, or with --store runs.db to answer later"


def _words(options: Mapping[str, str | None], functions: Many, settings: Many) -> str:
    """Return options as written in a shell, each after a blank; limits are left out, since a run keeps its own."""
    options_set = [(name, value) for name, value in options.items() if value is not None and value != EMBEDDED]
    options_set += [("--function", value) for value in functions or ()]
    options_set += [
        ("--set", value) for value in settings or () if value.partition("=")[0] in Settings.__struct_fields__
    ]
    return "".join([f" {name} {shlex.quote(value)}" for name, value in options_set])
