"""Does the list of providers say what is set, and never its value?"""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from fsm_agent.cli import app
from fsm_agent.providers.catalog import PROVIDERS

KEY = "sk-this-is-a-secret-key-of-somebody"


def listed(*arguments: str) -> str:
    ended = CliRunner().invoke(app, ["providers", "list", *arguments])
    assert (ended.exit_code, ended.stderr) == (0, "")
    return ended.stdout


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, object]]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "https://me:hunter22@example.com/v1")
    monkeypatch.setenv("GROQ_API_KEY", "")
    return {row["name"]: row for row in json.loads(listed("--json"))}


def test_every_provider_is_there(rows):
    assert [*rows] == sorted(PROVIDERS)


def test_a_key_is_set_or_not(rows):
    assert rows["openai"]["keys"] == [{"variable": "OPENAI_API_KEY", "is_set": True}]
    assert rows["groq"]["keys"] == [{"variable": "GROQ_API_KEY", "is_set": False}]
    assert (rows["groq"]["key_is_needed"], rows["ollama"]["key_is_needed"]) == (True, False)


def test_wires_and_addresses(rows):
    assert rows["openai"]["wires"] == ["openai-responses", "openai-chat"]
    assert rows["anthropic"]["base_url"] == "https://api.anthropic.com/v1"
    assert rows["openai"]["base_url_variable"] == {"variable": "OPENAI_BASE_URL", "is_set": True}
    assert rows["local"]["is_embedded"]


def test_no_value_of_a_variable_is_shown(rows):
    for said in (listed(), listed("--json")):
        assert KEY not in said
        assert "hunter22" not in said


def test_people_read_lines_that_are_short(rows):
    said = listed()
    assert "openai\n  key: OPENAI_API_KEY (set)\n  wires: openai-responses or openai-chat\n" in said
    assert "local\n  key: none\n" in said
    assert max(map(len, said.splitlines())) <= 100
