"""The commands ``fsm-agent prompts …``: see prompts in files and in packages, and check all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fsm_agent._internal.plain_text import plain
from fsm_agent.cli.models import Debug, Json
from fsm_agent.cli.options import load_object
from fsm_agent.cli.render import json_text
from fsm_agent.cli.reporting import FAILED, option, reporting
from fsm_agent.cli.terminal import Screen, one_line
from fsm_agent.errors import UsageError
from fsm_agent.prompts.files import HANDLERS
from fsm_agent.prompts.library import Prompts
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.template import PromptFileError
from fsm_agent.validation import shown

app = typer.Typer(no_args_is_help=True, help="Prompts in files: list them, check all of them, show one.")

Directory = Annotated[
    list[Path] | None, typer.Option("--directory", help="Where the files are; by default 'prompts'. Repeatable.")
]
Package = Annotated[str | None, typer.Option(help="A package with a folder 'prompts'.")]
NamesOption = Annotated[str | None, typer.Option("--names", help="A mapping of what files may name, as module:name.")]
_DEFAULTS = {kind: getattr(Prompt(""), f"on_{kind}") for kind in HANDLERS}


@app.command("list")
def list_prompts(
    directory: Directory = None,
    package: Package = None,
    names: NamesOption = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List prompts: their variables, their outputs, their functions."""
    with reporting(debug), _open_prompts(directory, package, names) as prompts, Screen() as screen:
        rows = [_row(prompts, name) for name in prompts.names()]
        if as_json:
            screen.line(json_text(rows))
            return
        for row in rows:
            screen.line(_format_signature(row), "red" if "problems" in row else "")
            for line in _details(row, ("functions", "hosted_tools")):
                screen.line(f"  {line}")
        if not rows:
            screen.tell(f"no prompts in {_places(prompts)}")


@app.command()
def check(
    directory: Directory = None,
    package: Package = None,
    names: NamesOption = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check all prompts, and what their files name; exit with 1 if anything is wrong."""
    with reporting(debug), _open_prompts(directory, package, names) as prompts, Screen() as screen:
        count, problems = len(prompts.names()), prompts.problems()
        if not (count or problems):
            raise UsageError(f"expected prompts in {_places(prompts)}, got none; add a file such as 'shop/count.jinja'")
        if as_json:
            screen.line(json_text({"prompts": count, "problems": [problem._asdict() for problem in problems]}))
        else:
            for problem in problems:
                screen.line(f"{problem.file}:{problem.line}" if problem.line else problem.file, "red")
                for line in problem.text.splitlines():
                    screen.prose(line, indent="  ", hang="  ")
            wrong = f"{len(problems)} problem(s)" if problems else "no problems"
            screen.line(f"{count} prompt(s) checked: {wrong}")
        if problems:
            raise typer.Exit(FAILED)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The prompt, as root/name.")],
    directory: Directory = None,
    package: Package = None,
    names: NamesOption = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a prompt: its variables, its settings and its template."""
    with reporting(debug), _open_prompts(directory, package, names) as prompts, Screen() as screen:
        prompt, file = prompts(name), prompts.file(name)
        row = _describe_prompt(prompt, file)
        if as_json:
            screen.line(json_text({**row, "template": prompt.template}))
            return
        screen.line(_format_signature(row), "bold")
        for line in _details(row, [key for key in row if key not in ("prompt", "variables", "output")]):
            screen.line(f"  {line}")
        screen.line()
        screen.line(prompt.template)


@contextmanager
def _open_prompts(directory: list[Path] | None, package: str | None, names: str | None) -> Iterator[Prompts]:
    """Yield the prompts that the options name; modules in the working directory are found, too."""
    if missing := [str(path) for path in directory or () if not path.is_dir()]:
        raise typer.BadParameter(f"expected a directory, got {missing[0]!r}", param_hint="--directory")
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        mapping = None if names is None else option("--names", _mapping, names)
        yield option("--package", lambda: Prompts(directory=directory or None, package=package, names=mapping))
    finally:
        sys.path.remove(here)


def _mapping(named: str) -> Mapping[str, Any]:
    found = load_object(named)
    if not isinstance(found, Mapping):
        raise UsageError(f"{named!r}: expected a mapping such as {{'Order': Order}}, got {shown(found)}")
    return found


def _row(prompts: Prompts, name: str) -> dict[str, Any]:
    try:
        return _describe_prompt(prompts(name), prompts.file(name))
    except PromptFileError as error:
        return {"prompt": name, "problems": [problem._asdict() for problem in error.problems]}
    except UsageError as error:
        return {"prompt": name, "problems": [{"file": str(prompts.file(name)), "line": 0, "text": str(error)}]}


def _describe_prompt(prompt: Prompt, file: Path | None) -> dict[str, Any]:
    """Return what a prompt is, as plain values; what is as usual is left out."""
    row: dict[str, Any] = {
        "prompt": prompt.path,
        "variables": sorted(prompt.variables),
        "output": _named(prompt.output),
        "parser": prompt.parser and (getattr(prompt.parser, "label", None) or _named(prompt.parser)),
        "functions": [_named(item) for item in prompt.functions],
        "hosted_tools": [repr(tool) for tool in prompt.hosted_tools],
        "settings": dict(prompt.settings),
        "mode": prompt.mode,
    }
    for kind, usual in _DEFAULTS.items():
        handler = getattr(prompt, f"on_{kind}")
        if handler != usual:
            row[f"on_{kind}"] = str(handler) if isinstance(handler, str) else getattr(handler, "template", None)
            row[f"on_{kind}"] = row[f"on_{kind}"] or _named(handler)
    kept = {key: value for key, value in row.items() if value or key == "variables"}
    return {**kept, "includes": sorted(getattr(prompt.template, "parts", ())), "file": file and str(file)} | {
        "fingerprint": prompt.fingerprint
    }


def _named(item: Any) -> str:
    return str(getattr(item, "name", None) or getattr(item, "__name__", None) or item)


def _format_signature(row: Mapping[str, Any]) -> str:
    """Return a prompt as Python would write its signature."""
    if "problems" in row:
        return f"{row['prompt']}: {len(row['problems'])} problem(s), see 'prompts check'"
    return f"{row['prompt']}({', '.join(row['variables'])}) -> {row['output']}"


def _details(row: Mapping[str, Any], keys: Any) -> Iterator[str]:
    for key in keys:
        if value := row.get(key):
            if isinstance(value, list):
                value = ", ".join(value)
            elif isinstance(value, Mapping):
                value = ", ".join([f"{name}={item!r}" for name, item in value.items()])
            yield f"{key.replace('_', ' ')}: {plain(one_line(str(value)))}"


def _places(prompts: Prompts) -> str:
    return " or ".join([repr(str(path)) for path in prompts.directories])
