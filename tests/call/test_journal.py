"""Is a journal the truth, and is nothing else taken for it?"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from support.kept_runs import OWN_CLOCK, Agent, clerk, definition_of, ended, function_call, loaded

from fsm_agent.call import (
    AgentCall,
    Begun,
    Cancelled,
    Chain,
    Header,
    Injected,
    Journal,
    Limits,
    Replied,
    Returned,
    header_of,
    replay,
)
from fsm_agent.errors import JournalError, OutcomeError, ReplayError, UsageError
from fsm_agent.messages import Done, Message, Reply
from fsm_agent.prompts import Dialog, Prompt
from fsm_agent.store import MemoryStore, Runs, SqliteStore
from fsm_agent.testing import Script, as_json

KEY = b"k" * 32
MUTATIONS = 120
HEADER = '{"version":1,"agent":"a","fingerprint":"f","seed":{"x":1}}'


def kept(signing_key: bytes | None = None) -> tuple[Agent[Any, Any], str, list[str]]:
    """A run of everything, from its first line to its last."""
    agent = ended(Runs(MemoryStore(), signing_key=signing_key))
    run = loaded(agent.runs.all.store)
    return agent, run.header, list(run.lines)


def process_of(agent: Agent[Any, Any], header: str) -> Any:
    return definition_of(agent).make(header_of(header), None)


def folded(agent: Agent[Any, Any], header: str, lines: list[str], signing_key: bytes | None = None) -> Any:
    process = process_of(agent, header)
    replay(process, lines, Chain(header, signing_key), header_of(header).fingerprint)
    return process


# Forgers: they know how digests are made, as anybody can


def digest(before: str, body: bytes, signing_key: bytes | None) -> str:
    if signing_key is not None:
        return hmac.new(signing_key, before.encode() + body, "sha256").hexdigest()
    return hashlib.blake2b(before.encode() + body, digest_size=16).hexdigest()


def sealed(header: str, lines: list[str], signing_key: bytes | None = None) -> list[str]:
    """Return the lines with new digests."""
    before, made = digest("", header.encode(), signing_key), []
    for line in lines:
        body = line.encode().rpartition(b',"digest":"')[0]
        before = digest(before, body, signing_key)
        made.append(f'{body.decode()},"digest":"{before}"}}')
    return made


def changed(line: str, **changes: Any) -> str:
    """A line with other contents, and a digest that was computed for it alone."""
    document = json.loads(line) | changes
    mac = document.pop("digest")
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False)[:-1]
    return f'{body},"digest":"{mac}"}}'


def test_a_forger_who_changes_nothing_writes_the_same():
    for signing_key in (None, KEY):
        agent, header, lines = kept(signing_key)
        assert sealed(header, lines, signing_key) == lines
        assert folded(agent, header, lines, signing_key).output == 42


# Mutations of real journals


def flipped(rng: Random, lines: list[str]) -> list[str]:
    i = rng.randrange(len(lines))
    data = bytearray(lines[i].encode())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    lines[i] = data.decode("utf-8", "surrogateescape").encode("utf-8", "surrogateescape").decode("latin-1")
    return lines


def swapped(rng: Random, lines: list[str]) -> list[str]:
    i, j = rng.sample(range(len(lines)), 2)
    lines[i], lines[j] = lines[j], lines[i]
    return lines


def dropped(rng: Random, lines: list[str]) -> list[str]:
    del lines[rng.randrange(len(lines) - 1)]  # without the last, it is an earlier journal
    return lines


def doubled(rng: Random, lines: list[str]) -> list[str]:
    i = rng.randrange(len(lines))
    lines.insert(rng.randrange(len(lines) + 1), lines[i])
    return lines


def cut(rng: Random, lines: list[str]) -> list[str]:
    i = rng.randrange(len(lines))
    lines[i] = lines[i][: rng.randrange(len(lines[i]))]
    return lines


def of_another_key(rng: Random, lines: list[str]) -> list[str]:
    i = rng.randrange(len(lines))
    key = rng.choice(["begin", "model:0", "model:9", "run:1.0", "run:1.2", "ask:9.0", "sleep:1", "", "☃", "a/b"])
    if json.loads(lines[i])["key"] == key:
        key += "0"
    lines[i] = changed(lines[i], key=key)
    return lines


def of_another_outcome(rng: Random, lines: list[str]) -> list[str]:
    i = rng.randrange(len(lines))
    outcome = json.loads(lines[i])["outcome"]
    kind = outcome["kind"]
    if kind == "returned":
        outcome["text"] += rng.choice([" ", "0", "\u2028"])
    elif kind == "replied":
        outcome["reply"]["message"]["parts"].append({"kind": "text", "text": rng.choice(["x", "17"])})
    else:
        outcome["at_s"] = outcome.get("at_s", 0.0) + rng.choice([1e-3, 1.0, -5.0])
    lines[i] = changed(lines[i], outcome=outcome)
    return lines


def of_other_steps(rng: Random, lines: list[str]) -> list[str]:
    i = rng.randrange(len(lines))
    steps = json.loads(lines[i])["steps"]
    made = rng.choice([[], [*steps, ["", "returned"]], [["child", steps[0][1]]], [["", "answered_well"]]])
    lines[i] = changed(lines[i], steps=made)
    return lines


def of_another_fence(rng: Random, lines: list[str]) -> list[str]:
    i = rng.randrange(len(lines))
    lines[i] = changed(lines[i], fence=json.loads(lines[i])["fence"] + rng.choice([-1, 1, 7]))
    return lines


def of_another_number(rng: Random, lines: list[str]) -> list[str]:
    i = rng.randrange(len(lines))
    lines[i] = changed(lines[i], n=json.loads(lines[i])["n"] + rng.choice([-1, 1, 100]))
    return lines


def with_more(rng: Random, lines: list[str]) -> list[str]:
    i = rng.randrange(len(lines))
    lines[i] = changed(lines[i], **{rng.choice(["note", "digest2", "Key"]): "x"})
    return lines


def spliced(rng: Random, lines: list[str]) -> list[str]:
    """A line of another run."""
    i = rng.randrange(len(lines))
    lines[i] = OTHER[min(i, len(OTHER) - 1)]
    return lines


def of_another_run() -> list[str]:
    agent = clerk(Runs(MemoryStore()))
    with pytest.raises(Exception, match=r"waits in"):
        agent.call("Go on.", run_id="r2")
    return list(loaded(agent.runs.all.store, "r2").lines)


OTHER = of_another_run()
CONTENTS = [of_another_key, of_another_outcome, of_other_steps, of_another_fence, of_another_number, with_more]
WAYS = [flipped, swapped, dropped, doubled, cut, spliced, *CONTENTS]


@pytest.mark.parametrize("signing_key", [None, KEY])
def test_mutated_journals_are_refused(signing_key: bytes | None, say: Callable[[str], None]):
    agent, header, lines = kept(signing_key)
    refused: Counter[str] = Counter()
    for number in range(MUTATIONS):
        rng = Random(number)
        way = WAYS[number % len(WAYS)]
        mutated = way(rng, list(lines))
        assert mutated != lines
        with pytest.raises(JournalError, match=r"entry \d+ "):
            folded(agent, header, mutated, signing_key)
        refused[way.__name__] += 1
    assert refused.total() == MUTATIONS
    say(f"{MUTATIONS} mutated journals of {len(lines)} entries, signed: {signing_key is not None}: all refused")


def test_with_a_key_those_are_refused_whose_digests_were_computed_anew(say: Callable[[str], None]):
    agent, header, lines = kept(KEY)
    unsigned_agent, unsigned_header, unsigned = kept()
    taken = 0
    for number in range(MUTATIONS):
        rng = Random(number)
        way = [*CONTENTS, swapped, dropped, doubled, spliced][number % 10]
        for forger in (None, b"f" * 32):
            forged = sealed(header, way(Random(number), list(lines)), forger)
            with pytest.raises(JournalError, match=r"entry 1 is damaged"):
                folded(agent, header, forged, KEY)
        try:
            folded(unsigned_agent, unsigned_header, sealed(unsigned_header, way(rng, list(unsigned))))
            taken += 1
        except (JournalError, ReplayError):
            pass
    assert taken > MUTATIONS / 10, "without a key nobody can tell a forger"
    say(f"{2 * MUTATIONS} forged journals with a key: all refused; without one, {taken} of {MUTATIONS} taken")


def test_a_header_that_was_changed_is_noticed_at_the_first_entry():
    agent, header, lines = kept()
    for i in range(0, len(header), 7):
        other = header[:i] + chr(ord(header[i]) ^ 1) + header[i + 1 :]
        try:
            made = header_of(other)
        except JournalError:
            continue
        with pytest.raises(JournalError, match="entry 1 is damaged"):
            replay(process_of(agent, header), lines, Chain(other), made.fingerprint)


def test_a_journal_whose_end_was_cut_off_is_an_earlier_one():
    agent, header, lines = kept()
    whole = folded(agent, header, lines)
    for n in range(len(lines)):
        assert len(folded(agent, header, lines[:n]).record.trace) == n
    assert len(whole.record.trace) == len(lines)


# Texts of errors


def test_errors_name_the_entry_at_fault():
    agent, header, lines = kept()

    def refused(made: list[str], entry: int, kind: type[Exception] = JournalError, header: str = header) -> str:
        with pytest.raises(kind, match=rf"entry {entry}\b") as caught:
            folded(agent, header, made)
        return str(caught.value)

    refused([*lines[:2], lines[3]], 3)
    refused([*lines[:2], "nonsense"], 3)
    refused([*lines[:2], lines[2], lines[2]], 4)
    refused(sealed(header, [*lines[:2], lines[3]]), 4)
    refused(sealed(header, [*lines[:2], changed(lines[2], steps=3)]), 3)
    refused(sealed(header, [changed(lines[0], fence=3), *lines[1:]]), 2)
    with pytest.raises(JournalError, match="entry 1"):
        folded(agent, header, lines, KEY)
    other = sealed(header, [*lines[:6], changed(lines[6], key="model:7"), *lines[7:]])
    assert "model:7" in refused(other, 7, ReplayError)
    told = sealed(header, [*lines[:6], changed(lines[6], steps=[["warm", "began"], ["", "ended"]]), *lines[7:]])
    assert "warm: began" in refused(told, 7, ReplayError)
    refused(sealed(header, [*lines[:6], changed(lines[6], steps=[]), *lines[7:]]), 7, ReplayError)
    foreign = header.replace(header_of(header).fingerprint, "0" * 16)
    assert "0" * 16 in refused(sealed(foreign, other), 7, ReplayError, foreign)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("", "document"),
        ("{}", "version"),
        (HEADER.replace('"version":1', '"version":2'), "version"),
        (HEADER[:-1] + ',"more":1}', "more"),
        (HEADER.replace('"agent":"a"', '"agent":7'), "agent"),
    ],
)
def test_a_header_that_is_none_is_refused(document: str, problem: str):
    with pytest.raises(JournalError, match=problem):
        header_of(document)


def test_a_header_is_read_as_it_was_written():
    header = Header(
        version=1,
        agent="a\u2028\x00",
        fingerprint="f",
        seed=msgspec.Raw(b"[1]"),
        follows="r0",
        forked=("r9", 4),
        extra={"ticket": 17, "who": "☃"},
    )
    text = msgspec.json.encode(as_json(header)).decode()
    assert header_of(text) == header


# Lines


def journaled(**options: Any) -> AgentCall[Any]:
    prompt = Prompt("{{ task }}", path="p", **options)
    return AgentCall.seed(Dialog().put("Go."), prompt).journaled()


def written(call: AgentCall[Any], chain: Chain | None = None) -> list[str]:
    assert call.journal is not None
    chain = chain or Chain(HEADER)
    return chain.written(call.journal.since(chain.n), 1)


def refolded(call: AgentCall[Any]) -> AgentCall[Any]:
    other = AgentCall.seed(Dialog().put("Go."), call.prompt)
    replay(other, written(call), Chain(HEADER))
    assert other.record == call.record
    assert other.record.trace == call.record.trace
    return other


@pytest.mark.parametrize("text", ["", "\x00", "\u2028\u2029\x85", '\\"', "☃🜁", 'a,"digest":"b', "x" * 10_000])
def test_any_text_is_written_in_one_line_and_read_again(text: str):
    call = journaled()
    call.advance("begin", Begun(at_s=1.0, id=text))
    call.advance("model:0", Replied(reply=Reply.of(text or "-"), at_s=2.5))
    assert all("\n" not in line for line in written(call))
    assert refolded(call).record.id == text


def test_half_a_surrogate_pair_becomes_a_replacement_in_the_journal_as_in_a_snapshot():
    call = journaled()
    call.advance("begin", Begun(at_s=1.0, id="c"))
    call.advance("model:0", Replied(reply=Reply.of("a\ud800b")))
    lines = written(call)
    lines[1].encode()
    other = AgentCall.seed(Dialog().put("Go."), call.prompt)
    replay(other, lines, Chain(HEADER))
    assert other.output == "a\ufffdb"


def test_what_could_not_be_read_again_is_not_taken():
    call = journaled()
    call.advance("begin", Begun(at_s=1.0, id="c"))
    before = call.record
    wrong = Message.of("user", "x").changed(parts=(object(),))
    with pytest.raises(OutcomeError, match="journal"):
        call.advance("", Injected((wrong,)))
    assert call.record is before
    assert call.journal.n == 1
    call.advance("", Cancelled(reason="enough"))
    refolded(call)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_written_and_read_as_it_is(number: float):
    def weigh() -> float:
        """Weigh."""
        return 1.0

    one = journaled(functions=[weigh])
    one.advance("begin", Begun(at_s=1.0, id="c"))
    one.advance("model:0", Replied(reply=Reply.of(function_call("weigh"), "x").changed(logprobs=())))
    one.advance(one.effects[0].key, Returned(text=str(number)))
    refolded(one)


def test_a_chain_goes_on_where_it_was_left():
    one = journaled()
    one.advance("begin", Begun(at_s=1.0, id="c"))
    chain = Chain(HEADER)
    first = written(one, chain)
    one.advance("model:0", Replied(reply=Reply.of("fine")))
    rest = written(one, chain)
    assert (len(first), len(rest), chain.n) == (1, 1, 2)
    read = Chain(HEADER)
    read.verified(first[0])
    assert Chain(HEADER, None, 1, read.digest).verified(rest[0]).n == 2


# Undo, redo, states


def test_steps_are_undone_and_redone_and_states_are_shared():
    one = journaled()
    Agent(Script("fine")).run(one)
    states, record = one.states, one.record
    assert [state.state for state in states] == ["Seeded", "Calling", "Completed"]
    one.undo()
    assert one.record is states[1]
    assert [effect.key for effect in one.effects] == ["model:0"]
    one.undo()
    with pytest.raises(UsageError, match="undo"):
        one.undo()
    one.redo()
    one.redo()
    assert one.record is record
    assert one.result().output == "fine"
    with pytest.raises(UsageError, match="redo"):
        one.redo()
    assert states[2].dialog[0] is states[0].dialog[0]
    one.undo()
    one.advance("", Cancelled(reason="enough"))
    with pytest.raises(UsageError, match="redo"):
        one.redo()
    assert refolded(one).record.ending.reason == "cancelled"


def test_undo_needs_a_journal_that_is_in_no_store_and_no_driver():
    agent = clerk(MemoryStore())
    stored, _ = agent.runs.all.claims.begin(kept_call(agent), definition_of(agent))
    with pytest.raises(UsageError, match="store"):
        stored.undo()
    bare = AgentCall.seed(Dialog().put("Go."), Prompt("x"))
    with pytest.raises(UsageError, match="journaled"):
        _ = bare.states
    driven = AgentCall.seed(Dialog().put("Go."), Prompt("x")).journaled()
    refused: list[Any] = []

    def listen(event: Any) -> None:
        if isinstance(event, Done):
            return
        with pytest.raises(UsageError, match="undo"):
            driven.undo()
        refused.append(event)

    Agent(Script("fine")).run(driven, listen)
    assert refused
    driven.undo()


def kept_call(agent: Agent[Any, Any]) -> AgentCall[Any]:
    return agent.prepare("Go.", run_id="u")


# Interruptions


class Interrupted(Journal):
    """A journal in which Ctrl-C comes after the entry number ``at``, before the step is committed."""

    at = 0

    def add(self, entry: Any, before: Any) -> None:
        super().add(entry, before)
        if self.n == self.at:
            self.at = 0
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_entry_whose_step_was_interrupted_gives_way_to_the_next(at: int):
    one = journaled()
    one.journal = Interrupted(one.record)
    one.journal.at = at
    outcomes = [
        ("begin", Begun(at_s=1.0, id="c")),
        ("", Injected((Message.of("user", "Hurry."),))),
        ("model:1", Replied(reply=Reply.of("fine"))),
    ]
    for n, (key, outcome) in enumerate(outcomes, 1):
        if n == at:
            with pytest.raises(KeyboardInterrupt):
                one.advance(key, outcome)
            assert one.state == one.record.state
        one.advance(key, outcome)
    assert one.journal.n == 3
    assert refolded(one).output == "fine"


# Outcomes that their givers can change


def test_an_outcome_is_in_the_journal_as_it_was_when_it_was_taken() -> None:
    one = AgentCall.seed(Dialog().put("Go."), Prompt("p")).journaled()
    one.advance("begin", Begun(at_s=1.0, id="c"))
    parts: Any = list(Message.of("user", "as it was").parts)  # nobody is to give a list, and nobody looks so deep
    one.advance("", Injected((Message.of("user", "-").changed(parts=parts),), at_s=1.0))
    assert one.journal is not None
    parts[:] = Message.of("user", "as it is now").parts
    line = Chain(HEADER).written(one.journal.entries, 1)[1]
    assert "as it was" in line
    assert "as it is now" not in line


def test_a_run_is_the_same_in_memory_and_on_disk(tmp_path: Any) -> None:
    journals = []
    for store in (MemoryStore(), SqliteStore(tmp_path / "runs.db", OWN_CLOCK)):
        given: list[str] = []

        def note(word: str) -> list[str]:
            """Note a word."""
            given.append(word)  # noqa: B023
            return given  # noqa: B023

        script = Script(*[function_call("note", word=f"w{n}") for n in range(20)], "done")
        agent = Agent(script, functions=[note], limits=Limits(rounds=50), store=Runs(store, signing_key=KEY), name="a")
        agent.call("Go.", run_id="r")
        given.append("afterwards")
        lines = store.load("r").lines
        journals.append([line for line in lines if "afterwards" not in line])
        assert len(journals[-1]) == len(lines) == 42
        store.close()
    assert journals[0] == journals[1]
