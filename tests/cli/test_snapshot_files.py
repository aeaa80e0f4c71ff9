"""Does a call survive in a file, whole or not at all?"""

from __future__ import annotations

import os

import pytest

from fsm_agent.agents.agent import Agent
from fsm_agent.cli import snapshot_files
from fsm_agent.cli.snapshot_files import read_snapshot, write_snapshot
from fsm_agent.errors import CallSuspended, SnapshotError, UsageError
from fsm_agent.functions.function import function
from fsm_agent.lifecycle.outcomes import Approved
from fsm_agent.lifecycle.snapshot import snapshot
from fsm_agent.testing import Script, call


@function(needs_approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"{path} is erased"


@pytest.fixture
def waiting():
    with pytest.raises(CallSuspended) as suspended:
        Agent(Script(call("erase", path="ü")), functions=[erase]).call("Grüße")
    return suspended.value.call


def test_the_call_goes_on(tmp_path, waiting):
    write_snapshot(waiting, tmp_path / "call.json")
    agent = Agent(Script("Done."), functions=[erase])
    again = agent.restore(read_snapshot(tmp_path / "call.json"))
    assert again.record == waiting.record
    again.advance(again.effects[0].key, Approved())
    assert agent.run(again).output == "Done."


def test_what_was_there_is_replaced_and_nothing_else_is_left(tmp_path, waiting):
    (tmp_path / "call.json").write_text("x" * 100_000)
    with (tmp_path / "call.json").open() as old:
        write_snapshot(waiting, tmp_path / "call.json")
        assert len(old.read()) == 100_000
    assert read_snapshot(tmp_path / "call.json").decode() == snapshot(waiting)
    assert os.listdir(tmp_path) == ["call.json"]


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_only_its_owner_may_read_it_also_after_the_next_step(tmp_path, waiting):
    path = tmp_path / "call.json"
    before = os.umask(0)
    try:
        for mode in (0o600, 0o400):
            write_snapshot(waiting, path)
            assert path.stat().st_mode & 0o777 == 0o600
            path.chmod(mode)
        write_snapshot(waiting, path)
        assert path.stat().st_mode & 0o777 == 0o400
    finally:
        os.umask(before)


def test_a_file_that_cannot_be_written_is_left_as_it_was(tmp_path, waiting):
    (tmp_path / "call.json").mkdir()
    with pytest.raises(UsageError, match=r"no snapshot can be written to '.*call\.json': Is a directory"):
        write_snapshot(waiting, tmp_path / "call.json")
    assert os.listdir(tmp_path) == ["call.json"]
    with pytest.raises(UsageError, match="No such file or directory"):
        write_snapshot(waiting, tmp_path / "no/call.json")


def test_what_is_no_file_or_too_large_is_refused(tmp_path):
    with pytest.raises(SnapshotError, match=r"no snapshot can be read from '.*': No such file"):
        read_snapshot(tmp_path / "call.json")
    with (tmp_path / "call.json").open("wb") as file:
        file.truncate(snapshot_files.MAX_BYTES + 1)
    with pytest.raises(SnapshotError, match="is larger than 50000000 bytes: no snapshot is"):
        read_snapshot(tmp_path / "call.json")
