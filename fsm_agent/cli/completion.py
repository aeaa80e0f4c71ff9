"""Completions in a shell: names of models, runs, conversations, agents, flows, functions and prompts.

They are found without running user code and without the network: modules are parsed, not imported.  What cannot be
found is not completed; nothing here raises.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from functools import wraps
from pathlib import Path
from typing import Any

import typer

MAX_RUNS = 100
MAX_FILES, MAX_BYTES = 200, 200_000  # of modules that are read
_PREFIX = "_FSM_AGENT_COMPLETE_PREFIX"  # what bash has taken off the word
_COLON = ":"

Completer = Callable[[typer.Context, str], Iterable[str]]


def join_at_colons(environment: MutableMapping[str, str]) -> None:
    """Join the words of a command line that bash has split at its colons, as in ``openai:gpt-5``.

    The word to complete stays as bash has it, after the last colon; the part before it is kept for the completers.
    """
    try:
        words, position = shlex.split(environment["COMP_WORDS"]), int(environment["COMP_CWORD"])
    except (KeyError, ValueError):
        return
    last = words[position] if position < len(words) else ""
    joined: list[str] = []
    for word in words[:position]:
        if joined[1:] and (word == _COLON or _goes_on(joined[-1], word)):
            joined[-1] += word
        else:
            joined.append(word)
    if joined[1:] and (last == _COLON or _goes_on(joined[-1], last)):
        environment[_PREFIX] = joined.pop() + (_COLON if last == _COLON else "")
        last = "" if last == _COLON else last
    environment["COMP_WORDS"] = shlex.join([*joined, *filter(None, [last])])
    environment["COMP_CWORD"] = str(len(joined))


def _goes_on(before: str, word: str) -> bool:
    """Return whether the word after the colon probably belongs to it; ``local:`` may stand alone."""
    return before.endswith(_COLON) and word != "" and not word.startswith("-")


def _completer(find: Completer) -> Callable[[typer.Context, str], list[str]]:
    """Have a completer fail silently, and know the part of the word that bash has taken off."""

    @wraps(find)
    def completions(ctx: typer.Context, incomplete: str) -> list[str]:
        prefix = os.environ.get(_PREFIX, "")
        try:
            found = [value for value in find(ctx, prefix + incomplete) if value.startswith(prefix + incomplete)]
        except Exception:  # a shell that is typed in shows no errors
            return []
        return list(dict.fromkeys([value.removeprefix(prefix) for value in found if value.isprintable()]))

    return completions


@_completer
def models(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield providers; after a colon, their models, as far as they are known offline."""
    from fsm_agent.providers.catalog import PROVIDERS

    provider, colon, _ = incomplete.partition(_COLON)
    if not colon:
        yield from (f"{name}:" for name in sorted(PROVIDERS))
    elif PROVIDERS[provider].is_embedded:
        yield f"{provider}:"
        yield from (f"{provider}:{name}" for name in _hub_models())
    else:
        from fsm_agent.runtime.price_list import known_models

        yield from (f"{provider}:{name}" for name in known_models(provider))


@_completer
def hub_models(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield the models of the Hub that are here or recommended."""
    yield from _hub_models()


def _hub_models() -> Iterator[str]:
    from fsm_agent.clients.local import hub

    if hub.is_installed():
        yield from (str(one.model) for one in hub.cached_models())
    yield from (one.name for one in hub.RECOMMENDED)


@_completer
def runs(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield the runs of the store that the command line or the environment names, the last changed first."""
    yield from (run.id for run in _runs_of(ctx))


@_completer
def agents(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield the agents of the runs in the store."""
    yield from sorted({run.agent for run in _runs_of(ctx)})


@_completer
def questions(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield the keys of the questions that the run on the command line asks."""
    for run in _runs_of(ctx):
        if run.id == ctx.params.get("run"):
            yield from (question.key for question in run.waits)


def _runs_of(ctx: typer.Context) -> list[Any]:
    from fsm_agent.cli.runs.reading import opened

    store = ctx.params.get("store") or os.environ.get("FSM_AGENT_STORE")
    if not store:
        return []
    with opened(store, patience_s=0.5) as found:
        return found.store.list(limit=MAX_RUNS)


@_completer
def functions(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield ``module:name`` of the functions in modules here."""
    yield from _names_here(incomplete, lambda item: isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))


@_completer
def agents_here(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield ``module:name`` of the agents in modules here."""
    yield from _names_here(incomplete, lambda item: _calls(item, "Agent"))


@_completer
def flows_here(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield ``module:name`` of the flows in modules here."""
    yield from _names_here(incomplete, lambda item: _calls(item, "Flow"))


@_completer
def modules_here(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield the modules here."""
    yield from _files_here()


@_completer
def prompts(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Yield the prompts in the directories of the command line, else in ``prompts``."""
    from fsm_agent.prompts.library import Prompts

    yield from Prompts(directory=ctx.params.get("directory") or None).names()


def _files_here() -> dict[str, Path]:
    """Return the modules in the working directory and in its packages, by name."""
    here = Path.cwd()
    found = [path for path in (*here.glob("*.py"), *here.glob("*/*.py")) if not path.name.startswith(("_", "."))]
    named = {".".join(path.relative_to(here).with_suffix("").parts): path for path in sorted(found)[:MAX_FILES]}
    return {name: path for name, path in named.items() if all(part.isidentifier() for part in name.split("."))}


def _names_here(incomplete: str, is_one: Callable[[ast.stmt], bool]) -> Iterator[str]:
    """Yield the names in modules here; only modules that the incomplete word may name are read."""
    module, colon, _ = incomplete.partition(_COLON)
    for name, path in _files_here().items():
        if not (name == module if colon else name.startswith(module)) or path.stat().st_size > MAX_BYTES:
            continue
        try:
            items = ast.parse(path.read_bytes()).body
        except (SyntaxError, ValueError, OSError):
            continue
        for item in items:
            if is_one(item):
                yield from (f"{name}:{one}" for one in _defined(item) if not one.startswith("_"))


def _defined(item: ast.stmt) -> list[str]:
    if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
        return [item.name]
    targets = item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _calls(item: ast.stmt, kind: str) -> bool:
    """Return whether a statement assigns what such a class makes, as in ``x = Agent(…)`` or ``x = Agent[int](…)``."""
    value = item.value if isinstance(item, ast.Assign | ast.AnnAssign) else None
    made = value.func if isinstance(value, ast.Call) else None
    made = made.value if isinstance(made, ast.Subscript) else made
    name = made.attr if isinstance(made, ast.Attribute) else made.id if isinstance(made, ast.Name) else ""
    return re.fullmatch(rf"\w*{kind}", name) is not None
