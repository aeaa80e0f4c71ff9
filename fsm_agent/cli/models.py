"""The commands ``fsm-agent models`` and ``fsm-agent providers``, which show what ``--model`` may name."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fsm_agent._internal.masking import shown_url
from fsm_agent.cli.errors import option
from fsm_agent.cli.run_tables import TextTable
from fsm_agent.cli.terminal import Screen
from fsm_agent.clients.local import hub
from fsm_agent.clients.local.model import SMOLLM2, find_model
from fsm_agent.providers.catalog import PROVIDERS, Provider, split_model

_NAME = "hf:owner/repo or hf:owner/repo:Q4_K_M: print its file, or the command that downloads it."


def models(name: Annotated[str | None, typer.Argument(help=_NAME)] = None) -> None:
    """List the models on this machine, and recommended models with the commands that download them."""
    with Screen() as screen:
        if name is not None:
            screen.line(str(hub.find_cached(option("name", _hub_model, name))))
            return
        here = _models_here()
        for model, size_bytes in here:
            screen.line(f"{model}  {size_bytes / 1e6:.0f} MB")
        if not here:
            screen.tell("no model is here yet; the embedded one is fetched on first use")
        screen.line("recommended:", "bold")
        for one in hub.RECOMMENDED:
            screen.line(f"local:{one.name}")
            screen.prose(f"{one.good_for}: {one.file_gb:g} GB, {one.memory_gb:g} GB of memory, {one.licence}", indent=2)
            screen.line(f"  {hub.command_to_fetch(hub.hub_model(one.name))}")


def _hub_model(name: str) -> hub.HubModel:
    return hub.hub_model(split_model(name)[1] if name.startswith("local:") else name)


def _models_here() -> list[tuple[str, int]]:
    """Return each model's name, with the size of its file in bytes."""
    rows: list[tuple[str, int]] = []
    cached = [*hub.cached_models()] if hub.is_installed() else []
    usual = find_model()
    if usual is not None and usual not in [one.path for one in cached]:
        name = f"local: ({SMOLLM2.name})" if SMOLLM2.is_at(usual) else "local:"
        rows.append((name, usual.stat().st_size))
    return [*rows, *[(f"local:{one.model}", one.size_bytes) for one in cached]]


def providers() -> None:
    """List the providers of models with their wires and addresses, and say whether their keys are set."""
    with Screen() as screen:
        rows = [_row(PROVIDERS[name]) for name in sorted(PROVIDERS)]
        screen.show(TextTable(("provider", "key", "wires", "address"), rows))


def _row(entry: Provider) -> tuple[str, ...]:
    other = None if entry.is_wire_fixed else entry.other_wire
    wires = [entry.codec.name, *([other.codec.name] if other else [])]
    return entry.name, _key(entry), " or ".join(wires), _address(entry)


def _variable(name: str) -> str:
    """Show an environment variable as set or not set, without its value."""
    return f"{name} ({'set' if os.environ.get(name) else 'not set'})"


def _key(entry: Provider) -> str:
    if not entry.key_variables:
        return "none"
    return " or ".join(map(_variable, entry.key_variables)) + (", optional" if entry.key_is_optional else "")


def _address(entry: Provider) -> str:
    if entry.is_embedded:
        return "this machine"
    variable = entry.base_url_variable
    texts = [entry.base_url and shown_url(entry.base_url), variable and _variable(variable)]
    return " or ".join(filter(None, texts)) or "that of --base-url"
