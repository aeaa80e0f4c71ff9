"""The commands ``fsm-agent providers …``: those that ``--model`` may name."""

from __future__ import annotations

import os
from typing import Any

import typer

from fsm_agent._internal.plain_text import plain
from fsm_agent._internal.redaction import shown_url
from fsm_agent.cli.models import Debug, Json
from fsm_agent.cli.render import json_text
from fsm_agent.cli.reporting import reporting
from fsm_agent.cli.terminal import Screen
from fsm_agent.providers.catalog import PROVIDERS
from fsm_agent.providers.provider import Provider

app = typer.Typer(no_args_is_help=True, help="Providers of models: their keys, wires and addresses.")


@app.callback()
def providers() -> None:
    """Providers of models: their keys, wires and addresses."""


@app.command("list")
def list_providers(as_json: Json = False, debug: Debug = False) -> None:
    """List the providers, whether their keys are set, their wires and addresses."""
    with reporting(debug), Screen() as screen:
        rows = [_row(PROVIDERS[name]) for name in sorted(PROVIDERS)]
        if as_json:
            screen.line(json_text(rows))
            return
        for row in rows:
            screen.line(plain(row["name"]), "bold")
            for line in (f"key: {_key(row)}", f"wires: {' or '.join(row['wires'])}", f"address: {_address(row)}"):
                screen.prose(plain(line), indent="  ", hang="    ")


def _row(entry: Provider) -> dict[str, Any]:
    """Return a provider as plain values; of the variables of the environment, only whether they are set."""
    has_choice = entry.other_wire is not None and not entry.is_wire_fixed
    address = entry.base_url_variable
    return {
        "name": entry.name,
        "wires": [entry.codec.name, *([entry.other_wire.codec.name] if entry.other_wire and has_choice else [])],
        "keys": [{"variable": name, "is_set": _is_set(name)} for name in entry.key_variables],
        "key_is_needed": bool(entry.key_variables) and not entry.key_is_optional,
        "base_url": entry.base_url and shown_url(entry.base_url),
        "base_url_variable": address and {"variable": address, "is_set": _is_set(address)},
        "is_embedded": entry.is_embedded,
    }


def _is_set(variable: str) -> bool:
    return bool(os.environ.get(variable))


def _variable_text(variable: dict[str, Any]) -> str:
    return f"{variable['variable']} ({'set' if variable['is_set'] else 'not set'})"


def _key(row: dict[str, Any]) -> str:
    texts = " or ".join([_variable_text(variable) for variable in row["keys"]])
    return texts + ("" if row["key_is_needed"] else ", optional") if texts else "none"


def _address(row: dict[str, Any]) -> str:
    if row["is_embedded"]:
        return "this machine"
    texts = [row["base_url"]] if row["base_url"] else []
    texts += [_variable_text(row["base_url_variable"])] if row["base_url_variable"] else []
    return " or ".join(texts) or "that of --base-url"
