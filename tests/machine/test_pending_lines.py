"""Are lines that are written late those that would have been written at once?"""

from __future__ import annotations

from typing import Any

import pytest
from support.kept_runs import OWN_CLOCK

from fsm_agent.agents import Agent
from fsm_agent.errors import UsageError
from fsm_agent.lifecycle import AgentCall, Begun, Injected, Limits
from fsm_agent.machine import Chain, Entry
from fsm_agent.messages import Message
from fsm_agent.prompts import Dialog, Prompt
from fsm_agent.store import MemoryStore, Runs, SqliteStore
from fsm_agent.testing import Script, call

HEADER = '{"version":1}'
KEY = b"k" * 32
LIMITS = Limits(rounds=50)


def entries(first: int, last: int) -> list[Entry]:
    return [Entry(f"model:{n}", f'{{"kind":"x","n":{n}}}', '[["","replied"]]', object()) for n in range(first, last)]


@pytest.mark.parametrize("signing_key", [None, KEY])
@pytest.mark.parametrize("sizes", [(1,), (3, 0, 2, 4), (1,) * 1_500])
def test_lines_that_are_written_late_are_those_that_are_written_at_once(sizes: Any, signing_key: bytes | None):
    """In any number of batches, read from the last to the first; more batches than Python's stack has frames."""
    at_once, late = Chain(HEADER, signing_key), Chain(HEADER, signing_key)
    lines, batches, n = list[str](), list[Any](), 0
    for size in sizes:
        lines += at_once.written(entries(n, n + size), 7)
        batches.append(late.pending(entries(n, n + size), 7))
        n += size
    assert [len(batch) for batch in batches] == list(sizes)
    assert (late.n, late.digest) == (at_once.n, at_once.digest)
    assert [line for read in [list(batch) for batch in reversed(batches)][::-1] for line in read] == lines
    reader = Chain(HEADER, signing_key)
    assert [reader.verified(line).n for line in lines] == list(range(1, n + 1))


def test_an_outcome_is_in_the_journal_as_it_was_when_it_was_taken():
    """Also one that holds what its giver can change, by the time that the line is written."""
    one = AgentCall.seed(Dialog().put("Go."), Prompt("p")).journaled()
    one.advance("begin", Begun(at_s=1.0, id="c"))
    parts: Any = list(Message.of("user", "as it was").parts)  # nobody is to give a list, and nobody looks so deep
    one.advance("", Injected((Message.of("user", "-").changed(parts=parts),), at_s=1.0))
    assert one.journal is not None
    assert all(type(entry.outcome) is str for entry in one.journal.entries)
    lines = Chain(HEADER).pending(one.journal.entries, 1)
    parts[:] = Message.of("user", "as it is now").parts
    assert "as it was" in lines[1]
    assert "as it is now" not in lines[1]


def held(store: MemoryStore) -> Any:
    store.create("r", HEADER, agent="a")
    return store.claim("w", for_s=10.0, run="r")


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (Entry("a", '"two\nlines"', "[]", None), UsageError),
        (Entry("a", '"\ud800"', "[]", None), UnicodeEncodeError),
        (Entry("\ud800", "1", "[]", None), UnicodeEncodeError),
    ],
)
def test_what_cannot_be_written_is_refused_by_the_append_and_not_by_who_reads_it(entry: Entry, error: type[Exception]):
    store = MemoryStore()
    lease = held(store)
    with pytest.raises(error):
        store.append(lease, 0, Chain(HEADER).pending([*entries(0, 1), entry], 1))
    assert store.load("r").lines == ()
    assert store.append(lease, 0, Chain(HEADER).pending(entries(0, 1), 1)) == 0
    assert len(store.load("r").lines) == 1


def test_a_run_of_many_batches_is_the_same_in_memory_and_on_disk(tmp_path: Any):
    """Answers hold what their functions return: a list that is changed afterwards is in the journal as it was."""
    journals = []
    for name, store in (("memory", MemoryStore()), ("sqlite", SqliteStore(tmp_path / "runs.db", OWN_CLOCK))):
        kept: list[str] = []

        def note(word: str) -> list[str]:
            """Note a word."""
            kept.append(word)  # noqa: B023
            return kept  # noqa: B023

        script = Script(*[call("note", word=f"w{n}") for n in range(20)], "done")
        agent = Agent(script, functions=[note], limits=LIMITS, store=Runs(store, signing_key=KEY), name="a")
        agent.call("Go.", run_id="r")
        kept.append("afterwards")
        lines = store.load("r").lines
        journals.append([line for line in lines if "afterwards" not in line])
        assert len(journals[-1]) == len(lines) == 42, name
        store.close()
    assert journals[0] == journals[1]
