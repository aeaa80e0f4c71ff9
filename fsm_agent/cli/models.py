"""The commands ``fsm-agent models`` and ``fsm-agent providers``, which show what ``--model`` may name."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from fsm_agent._internal.redaction import shown_url
from fsm_agent.cli.errors import option
from fsm_agent.cli.options import Json
from fsm_agent.cli.run_tables import TextTable
from fsm_agent.cli.terminal import Screen, json_text
from fsm_agent.clients.local import hub
from fsm_agent.clients.local.model import SMOLLM2, find_model
from fsm_agent.providers.catalog import PROVIDERS, Provider, split_model

_NAME = "hf:owner/repo or hf:owner/repo:Q4_K_M: print its file, or the command that downloads it."


def models(name: Annotated[str | None, typer.Argument(help=_NAME)] = None, as_json: Json = False) -> None:
    """List the models on this machine, and recommended models with the commands that download them."""
    with Screen() as screen:
        if name is not None:
            screen.line(str(hub.find_cached(option("name", _hub_model, name))))
            return
        here = _models_here()
        if as_json:
            screen.line(json_text({"here": here, "recommended": [one._asdict() for one in hub.RECOMMENDED]}))
            return
        for row in here:
            screen.line(f"{row['name']}  {int(str(row['size_bytes'])) / 1e6:.0f} MB")
        if not here:
            screen.tell("no model is here yet; the embedded one is fetched on first use")
        screen.line("recommended:", "bold")
        for one in hub.RECOMMENDED:
            screen.line(f"local:{one.name}")
            screen.prose(f"{one.good_for}: {one.file_gb:g} GB, {one.memory_gb:g} GB of memory, {one.licence}", indent=2)
            screen.line(f"  {hub.command_to_fetch(hub.hub_model(one.name))}")


def _hub_model(name: str) -> hub.HubModel:
    return hub.hub_model(split_model(name)[1] if name.startswith("local:") else name)


def _models_here() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    cached = [*hub.cached_models()] if hub.is_installed() else []
    usual = find_model()
    if usual is not None and usual not in [one.path for one in cached]:
        name = f"local: ({SMOLLM2.name})" if SMOLLM2.is_at(usual) else "local:"
        rows.append({"name": name, "path": str(usual), "size_bytes": usual.stat().st_size})
    rows += [{"name": f"local:{one.model}", "path": str(one.path), "size_bytes": one.size_bytes} for one in cached]
    return rows


def providers(as_json: Json = False) -> None:
    """List the providers of models with their wires and addresses, and say whether their keys are set."""
    with Screen() as screen:
        rows = [_row(PROVIDERS[name]) for name in sorted(PROVIDERS)]
        screen.line(json_text(rows)) if as_json else screen.show(_table(rows))


def _row(entry: Provider) -> dict[str, Any]:
    """Return a provider as plain values.  Environment variables are shown only as set or not set."""
    other = None if entry.is_wire_fixed else entry.other_wire
    return {
        "name": entry.name,
        "wires": [entry.codec.name, *([other.codec.name] if other else [])],
        "keys": [_variable(name) for name in entry.key_variables],
        "key_is_needed": bool(entry.key_variables) and not entry.key_is_optional,
        "base_url": entry.base_url and shown_url(entry.base_url),
        "base_url_variable": entry.base_url_variable and _variable(entry.base_url_variable),
        "is_embedded": entry.is_embedded,
    }


def _table(rows: list[dict[str, Any]]) -> RenderableType:
    cells = [(row["name"], _key(row), " or ".join(row["wires"]), _address(row)) for row in rows]
    return TextTable(("provider", "key", "wires", "address"), cells)


def _variable(name: str) -> dict[str, Any]:
    return {"variable": name, "is_set": bool(os.environ.get(name))}


def _variable_text(variable: dict[str, Any]) -> str:
    return f"{variable['variable']} ({'set' if variable['is_set'] else 'not set'})"


def _key(row: dict[str, Any]) -> str:
    texts = " or ".join(map(_variable_text, row["keys"]))
    return texts + ("" if row["key_is_needed"] else ", optional") if texts else "none"


def _address(row: dict[str, Any]) -> str:
    if row["is_embedded"]:
        return "this machine"
    variable = row["base_url_variable"]
    texts = [row["base_url"], variable and _variable_text(variable)]
    return " or ".join(filter(None, texts)) or "that of --base-url"
