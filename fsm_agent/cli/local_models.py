"""The commands ``fsm-agent models …``: list the models for this machine, and find one."""

from __future__ import annotations

from typing import Annotated

import typer

from fsm_agent.cli.models import Debug, Json
from fsm_agent.cli.render import json_text
from fsm_agent.cli.reporting import option, reporting
from fsm_agent.cli.terminal import Screen
from fsm_agent.clients.local import hub
from fsm_agent.clients.local.model import SMOLLM2, find_model
from fsm_agent.providers.catalog import split_model

app = typer.Typer(no_args_is_help=True, help="Models that run on this machine: list and find them.")


@app.command("list")
def list_models(as_json: Json = False, debug: Debug = False) -> None:
    """List the models that are here, and those recommended, each with the command that fetches it."""
    with reporting(debug), Screen() as screen:
        here = _here()
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
            about = f"{one.good_for}: {one.file_gb:g} GB, {one.memory_gb:g} GB of memory, {one.licence}"
            screen.prose(about, indent="  ", hang="  ")
            screen.line(f"  {hub.command_to_fetch(hub.hub_model(one.name))}")


@app.command()
def path(
    name: Annotated[str, typer.Argument(help="hf:owner/repo, or hf:owner/repo:Q4_K_M; 'local:' may stand before it.")],
    debug: Debug = False,
) -> None:
    """Print the path of a model's file or, if it is not here, the command that fetches it."""
    with reporting(debug), Screen() as screen:
        screen.line(str(hub.find_cached(option("name", _model, name))))


def _model(name: str) -> hub.HubModel:
    return hub.hub_model(split_model(name)[1] if name.startswith("local:") else name)


def _here() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    cached = [*hub.cached_models()] if hub.is_installed() else []
    usual = find_model()
    if usual is not None and usual not in [one.path for one in cached]:
        name = f"local: ({SMOLLM2.name})" if SMOLLM2.is_at(usual) else "local:"
        rows.append({"name": name, "path": str(usual), "size_bytes": usual.stat().st_size})
    rows += [{"name": f"local:{one.model}", "path": str(one.path), "size_bytes": one.size_bytes} for one in cached]
    return rows
