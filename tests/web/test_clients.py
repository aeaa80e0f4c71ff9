"""Do the protocols' own clients, under node, hold conversations with an agent and a flow?"""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from service import running, service
from support.npm import installed
from test_translate import TASKS, ag_ui, ai_sdk, events_of, folded

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]  # it may have to install the clients
SOURCES = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def node() -> Path:
    """A folder with the clients and the scripts."""
    return installed(SOURCES)


def seen(node: Path, script: str, folder: Path) -> dict[str, Any]:
    runs = [asyncio.run(events_of(task)) for task in TASKS]
    told = {
        "agui": [data for pair in runs for events in pair for data in folded(ag_ui(), events)],
        "ai": [data for pair in runs for events in pair for data in folded(ai_sdk(), events)],
    }
    with running(service(folder, told)) as base:
        command = ["node", str(node / script), base]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_ag_ui(node: Path, tmp_path: Path) -> None:
    found = seen(node, "ag_ui.mjs", tmp_path)
    assert found["invalid"] == []
    assert found["checked"] > 100
    for path in ("/agui", "/plain"):
        talk = found[f"talk{path}"]
        assert [one.get("content") for one in talk[:2]] == ["hello", "Hello there"]
        weather = next(one for one in talk if one.get("toolCalls"))
        assert weather["toolCalls"] == [["3.0", "weather", '{"city": "Berlin"}']]
        assert {"role": "tool", "content": '{"city": "Berlin", "c": 11}', "toolCallId": "3.0"} in talk
        assert any("attic" in str(one.get("content")) for one in talk if one["role"] == "tool")
        assert "Guten Tag" in [one.get("content") for one in talk]
        failed = found[f"fail{path}"]
        assert "no key" in failed["message"]
    (asked,) = found["asked"]
    assert (asked["id"], asked["toolCallId"]) == ("ask:1.0", "1.0")
    assert found["answered"][-1]["content"].endswith("\nrefunded 5 for B-2")
    assert found["again"]["type"] in ("RUN_ERROR", "THROWN")
    assert found["flow"].count("STEP_STARTED") == 2
    assert found["letter"]["result"] == {"about": "the delay", "text": "Dear reader", "verdict": "fine"}
    assert found["cancelled"] is True
    assert found["broken"][-1] == "RUN_FINISHED"
    assert "TOOL_CALL_RESULT" in found["broken"]


def test_ai_sdk(node: Path, tmp_path: Path) -> None:
    found = seen(node, "ai_sdk.mjs", tmp_path)
    assert found["invalid"] == []
    assert found["checked"] > 100
    for api in ("/chat", "/plainchat"):
        talk = found[f"talk{api}"]
        assert talk[1] == ["assistant", ["Hello there"]]
        assert talk[3][1][0]["output"] == {"city": "Berlin", "c": 11}
        assert talk[5][1][0]["state"] == "output-error"
        assert "Guten Tag" in str(talk[7])
        assert "no key" in found[f"fail{api}"][0]
    assert found["asked"] == ["dynamic-tool", "approval-requested", "refund", {"order": "A-17", "euros": 20}]
    approved = found["approved_true"][-1][1]
    assert (approved[0]["state"], approved[0]["output"]) == ("output-available", "refunded 20 for A-17")
    assert found["approved_false"][-1][1][0]["state"] == "output-denied"
    assert "refunded 5 for B-2" in str(found["edited"][-1])
    assert found["question"]["kind"] == "answer"
    assert found["letter"][-1][0] == "assistant"
    one, reloaded = found["reload"]
    assert one == reloaded
    assert "went on" in str(one)
    assert found["late"] == 2
