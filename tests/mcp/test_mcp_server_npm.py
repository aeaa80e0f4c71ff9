"""Does npm's official client, under Node, use an agent as a tool, approve, deny, cancel and see progress?"""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from support.npm import installed
from support.paths import TESTS

pytest.importorskip("mcp")

from mcp_shop import SECRET
from test_mcp_server_processes import env, http

from fsm_agent import SqliteStore

NPM = TESTS / "mcp" / "npm"


@pytest.mark.system
@pytest.mark.timeout(400)  # it may have to install the client
def test_the_official_client_of_npm(tmp_path: Path) -> None:
    folder = installed(NPM)
    store, notes = tmp_path / "runs.db", tmp_path / "notes.txt"
    notes.touch()
    with http(store, notes) as (url, _):
        node = ["node", str(folder / "client.mjs"), url]
        done = subprocess.run(node, capture_output=True, text=True, timeout=60, env=env(), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    assert ["add", "Add two numbers.", ["a"]] in seen["tools"]
    assert ["desk", "The customers' desk.", ["task"]] in seen["tools"]
    assert (seen["added"], seen["after"]) == ([False, "42"], [False, "2"])
    assert seen["wrong"][0]
    assert "valid integer" in seen["wrong"][1]
    assert seen["bad"][0]
    assert SECRET[6:] not in json.dumps(seen)
    assert (seen["counted"], seen["progress"]) == ([False, "counted"], ["1 of 3", "2 of 3", "3 of 3"])
    assert seen["approved"] == [False, "The money: refunded B-1"]
    assert seen["denied"] == [True, "The call was not allowed: not today"]
    assert seen["declined"][0]
    assert seen["asked"] == [f'Allow refund({{"order":{space}"B-{n}"}})?' for n, space in ((1, " "), (2, ""), (3, ""))]
    assert "no longer wanted" in seen["cancelled"]
    assert notes.read_text() == "refund B-1\n"
    with closing(SqliteStore(store)) as kept:
        (hung,) = [run for run in kept.list() if '"hang"' in run.title]
        assert (hung.is_ended, hung.state) == (True, "Failed")
