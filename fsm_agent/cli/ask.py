"""The command ``fsm-agent ask``."""

from __future__ import annotations

import secrets
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from fsm_agent.agents.agent import Agent
from fsm_agent.cli import loading, options
from fsm_agent.cli.errors import option
from fsm_agent.cli.options import Many
from fsm_agent.cli.output import Advice, drive_and_show
from fsm_agent.cli.questions import Approver
from fsm_agent.cli.terminal import Screen
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import Document, Image, bytes_of, is_url, url_suffix
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.output import Output
from fsm_agent.prompts.prompt import Prompt

_PLAIN_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_PICTURES = (".gif", ".jpeg", ".jpg", ".png", ".webp")
_TASK = "The task, which follows piped input; '-' if the input is the whole task. With --prompt, its variable 'task'."


def ask(
    task: Annotated[str | None, typer.Argument(help=_TASK)] = None,
    model: options.Model = options.EMBEDDED,
    base_url: options.BaseUrl = None,
    function: options.Functions = None,
    prompt: options.NamedPrompt = None,
    var: Annotated[Many, typer.Option(metavar="NAME=VALUE", help="A variable of the prompt. Repeatable.")] = None,
    attach: Annotated[
        Many, typer.Option("--attach", "-a", metavar="FILE|URL", help="A picture, PDF or text file. Repeatable.")
    ] = None,
    system: Annotated[str, typer.Option(metavar="TEXT", help="The system prompt.")] = "",
    output: Annotated[
        str | None, typer.Option(metavar="TYPE", help="The answer's type, such as int or module:name. Prints JSON.")
    ] = None,
    setting: options.SettingsAndLimits = None,
    deps: options.Deps = None,
    store: options.OptionalStore = None,
    run_id: options.RunId = None,
    approve: options.Approve = False,
    as_json: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Ask a model, and let it call functions."""
    with Screen(quiet=quiet, as_json=as_json) as screen, options.open_if_named(store) as runs:
        functions, chosen = options.code_for(model, base_url, function, prompt, screen, approve=approve)
        settings, limits = options.settings_of(model, base_url, setting, on_cut="accept")  # the person sees the cut
        kind = str if output is None else option("--output", _output_type, output, chosen)
        asked = _asked(task, chosen, var)
        files = [option("--attach", _attachment, source) for source in attach or ()]
        if run_id is not None and store is None:
            raise options.without_store("--run-id")
        with options.connected(model, base_url, screen) as (client, name):
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
            given = loading.load_deps(deps, [agent])
            advice = Advice()
            if store is not None:
                where = options.store_option(store)
                if run_id is None:
                    run_id = secrets.token_hex(4)
                    screen.tell(f"run {run_id} in {where.removeprefix('--store ')}")
                code = {"--model": model, "--base-url": base_url, "--prompt": prompt, "--deps": deps}
                words = f"{shlex.quote(run_id)} {where}"
                again = f"fsm-agent runs resume {words}{_words(code, function, setting)}"
                advice = Advice(command=f"fsm-agent runs answer {words}", again=again)
            call = agent.prepare(Dialog().put(asked, *files) if files else asked, run_id=run_id, deps=given)
            drive_and_show(
                lambda sink: agent.run(call, sink),
                screen,
                advice,
                model=name,
                shown=None if output is None else lambda it: TypeAdapter(kind).dump_json(it.output, indent=2).decode(),
            )


def _asked(task: str | None, prompt: Prompt | None, var: Many) -> Any:
    """Return the task: text, or a prompt with its variables."""
    task = option("task", lambda: options.written_task(task, is_needed=prompt is None))
    if prompt is None:
        for name in option("--var", options.pairs, var or ()):
            raise typer.BadParameter(f"expected a prompt with the variable {name!r}, got none", param_hint="--var")
        if not task:
            raise typer.BadParameter("expected a task, got none; pass it as text", param_hint="task")
        return task
    values = option("--var", options.pairs, [*([] if task is None else [f"task={task}"]), *(var or ())])
    return option("--prompt", lambda: prompt(**values))


def _attachment(source: str) -> Image | Document:
    """Return the picture or the document in a file or at a URL."""
    if is_url(source):
        return Image.of(source) if url_suffix(source) in _PICTURES else Document.of(source)
    data = bytes_of(source, "file")
    with suppress(UsageError):
        return Image.of(data)
    with suppress(UsageError):
        return Document.of(data, name=Path(source).name)
    raise UsageError(f"expected a PNG, JPEG, GIF or WebP picture, a PDF, or text in UTF-8, got {source!r}")


def _output_type(named: str, prompt: Prompt | None) -> Any:
    """Return the type named by ``module:name``, or ``str``, ``int``, ``float`` or ``bool``."""
    if prompt is not None and (prompt.output is not str or prompt.parser is not None):
        raise typer.BadParameter(
            "expected a prompt without a type, got one with a type of its own; leave --output out",
            param_hint="--output",
        )
    found = _PLAIN_TYPES.get(named) or loading.load_object(named, "output")
    Output(found)  # refuses types that JSON cannot represent
    return found


def _words(code: dict[str, str | None], functions: Many, settings: Many) -> str:
    """Return options for a shell command, each with a leading space.  Limits are omitted, as a run keeps its own."""
    words = [(name, value) for name, value in code.items() if value is not None and value != options.EMBEDDED]
    words += [("--function", value) for value in functions or ()]
    words += [("--set", value) for value in settings or () if value.partition("=")[0] in Settings.__struct_fields__]
    return "".join([f" {name} {shlex.quote(value)}" for name, value in words])
