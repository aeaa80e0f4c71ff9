"""The commands ``fsm-agent prompts …``, which check all prompts in files and packages, and show one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from fsm_agent.cli.errors import FAILED, option
from fsm_agent.cli.loading import load_object, modules_here
from fsm_agent.cli.output import Command
from fsm_agent.cli.terminal import Screen, one_line
from fsm_agent.errors import UsageError
from fsm_agent.prompts.library import Prompts
from fsm_agent.prompts.prompt import HANDLERS, Prompt
from fsm_agent.validation import safe_repr

app = typer.Typer(no_args_is_help=True, help="Check all prompts in files, or show one.")

Directory = Annotated[
    list[Path] | None,
    typer.Option("--directory", help="A folder with prompt files; by default, 'prompts'. Repeatable."),
]
Package = Annotated[str | None, typer.Option(help="A package with a folder 'prompts'.")]
NamesOption = Annotated[
    str | None, typer.Option("--names", help="A mapping of names that files may use, as module:name.")
]
_DEFAULTS = {kind: getattr(Prompt(""), f"on_{kind}") for kind in HANDLERS}


@app.command(cls=Command)
def check(directory: Directory = None, package: Package = None, names: NamesOption = None) -> None:
    """Check all prompts and the objects that they name, list the valid ones, and exit with 1 on errors."""
    with Screen() as screen, _open_prompts(directory, package, names) as prompts:
        found, problems = prompts.names(), prompts.problems()
        if not (found or problems):
            places = " or ".join([repr(str(path)) for path in prompts.directories])
            raise UsageError(f"expected prompts in {places}, got none; add a file such as 'shop/count.jinja'")
        for name in found:
            with suppress(UsageError):  # it is among the problems
                screen.line(_format_signature(prompts(name)))
        for problem in problems:
            screen.line(f"{problem.file}:{problem.line}" if problem.line else problem.file, "red")
            for line in problem.text.splitlines():
                screen.prose(line, indent=2)
        wrong = f"{len(problems)} problem(s)" if problems else "no problems"
        screen.line(f"{len(found)} prompt(s) checked: {wrong}")
        if problems:
            raise typer.Exit(FAILED)


@app.command(cls=Command)
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The prompt, as root/name.")],
    directory: Directory = None,
    package: Package = None,
    names: NamesOption = None,
) -> None:
    """Show a prompt: its variables, its settings and its template."""
    with Screen() as screen, _open_prompts(directory, package, names) as prompts:
        prompt = prompts(name)
        screen.line(_format_signature(prompt), "bold")
        for key, value in _describe_prompt(prompt, prompts.file(name)).items():
            if value:
                screen.line(f"  {key.replace('_', ' ')}: {one_line(_words(value))}")
        screen.line()
        screen.line(prompt.template)


@contextmanager
def _open_prompts(directory: list[Path] | None, package: str | None, names: str | None) -> Iterator[Prompts]:
    """Yield the prompts that the options name.  Modules in the working directory are also found."""
    if missing := [str(path) for path in directory or () if not path.is_dir()]:
        raise typer.BadParameter(f"expected a directory, got {missing[0]!r}", param_hint="--directory")
    with modules_here():
        mapping = None if names is None else option("--names", _mapping, names)
        yield option("--package", lambda: Prompts(directory=directory or None, package=package, names=mapping))


def _mapping(named: str) -> Mapping[str, Any]:
    found = load_object(named)
    if not isinstance(found, Mapping):
        raise UsageError(f"{named!r}: expected a mapping such as {{'Order': Order}}, got {safe_repr(found)}")
    return found


def _describe_prompt(prompt: Prompt, file: Path | None) -> dict[str, Any]:
    """Describe the parts of a prompt that its signature does not show.  Defaults are shown as empty values."""
    row: dict[str, Any] = {
        "parser": prompt.parser and (getattr(prompt.parser, "label", None) or _named(prompt.parser)),
        "functions": [_named(item) for item in prompt.functions],
        "hosted_tools": [repr(tool) for tool in prompt.hosted_tools],
        "settings": dict(prompt.settings),
        "mode": prompt.mode,
    }
    for kind, usual in _DEFAULTS.items():
        if (handler := getattr(prompt, f"on_{kind}")) != usual:
            words = str(handler) if isinstance(handler, str) else getattr(handler, "template", None)
            row[f"on_{kind}"] = words or _named(handler)
    includes = sorted(getattr(prompt.template, "parts", ()))
    return {**row, "includes": includes, "file": file and str(file), "fingerprint": prompt.fingerprint}


def _named(item: Any) -> str:
    return str(getattr(item, "name", None) or getattr(item, "__name__", None) or item)


def _format_signature(prompt: Prompt) -> str:
    """Return a prompt's signature in Python's notation."""
    return f"{prompt.path}({', '.join(sorted(prompt.variables))}) -> {_named(prompt.output)}"


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return ", ".join([f"{name}={item!r}" for name, item in value.items()]) if isinstance(value, Mapping) else str(value)
