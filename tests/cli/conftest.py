"""A separate folder for the commands, and a model that replies as a test has written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fsm_agent.testing import Script, registries


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory.  Modules imported from it are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    for variable in ("FSM_AGENT_STORE", "FSM_AGENT_SIGNING_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    with registries():
        yield tmp_path
    for name, module in [*sys.modules.items()]:
        if name not in before and str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def named() -> list[str]:
    """The models that commands have asked, by the names that they were given."""
    return []


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, named: list[str]) -> Iterator[Callable[..., Script]]:
    """Make all later commands ask a script, whatever model they name, and return the script."""
    scripts: list[Script] = []

    def client_for(name: str, **_: Any) -> Any:
        named.append(name)
        return nullcontext(scripts[-1])

    def asked(*entries: Any) -> Script:
        scripts.append(Script(*entries))
        monkeypatch.setattr("fsm_agent.cli.options.client_for", client_for)
        return scripts[-1]

    yield asked
    for script in scripts:
        script.assert_exhausted()
