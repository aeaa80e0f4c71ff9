"""Does the support chat of the examples do what it promises, with a script for a model?"""

from __future__ import annotations

import base64
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

from fsm_agent.testing import Pieces, Script, function_call


def example() -> Any:
    pytest.importorskip("fastapi", reason="FastAPI is not installed")
    spec = importlib.util.spec_from_file_location("support_chat_app", ROOT / "examples" / "support_chat" / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def login(name: str, password: str = "sesame") -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}", "host": "shop"}


def events(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


def test_a_customer_gets_a_refund_that_a_person_approves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "sesame")
    monkeypatch.setenv("MODEL", "openai:none")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.chdir(tmp_path)
    client_of: Any = pytest.importorskip("starlette.testclient").TestClient
    model = Script(
        function_call("find_order", number="A-17"),
        function_call("refund", number="A-17", euros=40),
        Pieces("You get ", "10 euros."),
        "Hi.",
    )
    with client_of(example().make_app(model, str(tmp_path / "support.db"))) as page:
        assert page.get("/").status_code == 401
        assert page.get("/", headers=login("ann", "wrong")).status_code == 401
        assert "<main>" in page.get("/", headers=login("ann")).text
        said = {"role": "user", "id": "1", "content": "My lamp A-17 is broken."}
        body = {"threadId": "c1", "runId": "r1", "messages": [said]}
        end = events(page.post("/agui", json=body, headers=login("ann")))[-1]
        (asked,) = end["outcome"]["interrupts"]
        payload = {"approved": True, "editedArgs": {"number": "A-17", "euros": 10}}
        answer = {"interruptId": asked["id"], "status": "resolved", "payload": payload}
        body = {"threadId": "c1", "runId": "r2", "resume": [answer]}
        assert events(page.post("/agui", json=body, headers=login("bob")))[-1]["code"] == "NotAsked"
        told = events(page.post("/agui", json=body, headers=login("ann")))
        assert [one["content"] for one in told if one["type"] == "TOOL_CALL_RESULT"] == [
            "10 euros of A-17 are refunded"
        ]
        assert page.post("/api/ask?question=Hello", headers=login("ann")).json()["output"] == "Hi."
        assert page.post("/api/ask?question=Hello").status_code == 401
