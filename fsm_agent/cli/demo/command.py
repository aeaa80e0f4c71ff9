"""The command ``fsm-agent demo``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from fsm_agent.cli.demo.approval import Reach
from fsm_agent.cli.demo.demo import SETTINGS, build_demo
from fsm_agent.cli.demo.items import Finding
from fsm_agent.cli.demo.screen import DemoScreen
from fsm_agent.cli.models import EMBEDDED, BaseUrl, Debug, Json, Model, connected, is_embedded
from fsm_agent.cli.reporting import FAILED, reporting
from fsm_agent.cli.terminal import Screen, error_line
from fsm_agent.clients.local.server import local_server
from fsm_agent.providers.catalog import split_model


def demo(
    model: Model = EMBEDDED,
    base_url: BaseUrl = None,
    output: Annotated[Path | None, typer.Option(help="Where the diagram goes: a file or a directory.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a real model at work: functions, types, a parse error, log probabilities, approval."""
    with reporting(debug):
        findings: list[Finding] = []
        with Screen(steps=as_json) as screen, connected(model, base_url, screen) as (client, name):
            demo_screen = DemoScreen(screen, as_json=as_json)
            demo_screen.introduce(name)
            reach = _reach(model, base_url)
            with closing(build_demo(client, is_embedded=is_embedded(model, base_url), reach=reach).play()) as items:
                for item in items:
                    demo_screen.show(item)
                    if isinstance(item, Finding):
                        findings.append(item)
            demo_screen.finish(name, findings, output)
        if problems := [finding.problem for finding in findings if finding.problem]:
            error_line(f"{len(problems)} of {len(findings)} parts failed: {'; '.join(problems)}")
            raise typer.Exit(FAILED)


def _reach(model: str, base_url: str | None) -> Reach:
    """Return how another process reaches this model; the embedded one, through the server that runs already."""
    if not is_embedded(model, base_url):
        return Reach(options=("--model", model, *(("--base-url", base_url) if base_url else ())))
    server = local_server(split_model(model)[1] or None)
    settings = [word for name, value in SETTINGS["eraser"].items() for word in ("--set", f"{name}={value}")]
    return Reach(
        options=("--model", f"llamacpp:{server.model}", "--base-url", server.base_url, *settings),
        environment={"LLAMA_API_KEY": server.api_key},
    )
