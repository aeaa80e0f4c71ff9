"""Prepares journal entries for display: as one item per entry, as a run's timeline, or for two runs side by side."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from fsm_agent._internal.structs import from_data
from fsm_agent._internal.text import pretty, shown
from fsm_agent.call.call import AgentCall
from fsm_agent.call.outcomes import ModelFailed, Replied
from fsm_agent.call.process import SEPARATOR, prefix_of, subject_of
from fsm_agent.call.record import FAILURES, State
from fsm_agent.errors import FsmAgentError, ProgramError
from fsm_agent.messages.message import FunctionCall, FunctionResult, Image, Message, Reasoning, Text
from fsm_agent.store.history import RETRIED, Divergence, HistoryEntry, RunHistory, divergence, is_same
from fsm_agent.store.runs import Runs
from fsm_agent.web.run_list import span

_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})  # types that a page shows
_MOST_IMAGE = 2_000_000  # bytes of an image in a page
_VERDICTS = {
    "approved": "approves",
    "denied": "denies",
    "modified": "approves with other arguments",
    "returned": "answers",
    "run_again": "says: run it again",
    "cancelled": "cancels",
    "stopped": "stops",
    "injected": "adds",
    "edited": "changes the data",
    RETRIED: "retries",
}
_BAD = frozenset({"denied", "cancelled", "expired"})

Item = dict[str, Any]  # the values for the template of an entry


def tell_entries(reading: RunHistory, after: int = 0, until: int | None = None) -> list[Item]:
    """Return the items for the entries from number ``after + 1`` to ``until``, or to the last one."""
    names, undone = name_processes(reading), _undone(reading)
    requested: dict[str, Sequence[FunctionCall]] = {}  # the calls of the last reply, by path
    tries = Counter[str]()  # consecutive failed requests, by path
    items: list[Item] = []
    for entry in reading.entries[:until]:
        if isinstance(entry.outcome, Replied):
            requested[entry.path] = entry.outcome.reply.message.function_calls
        if entry.kind in FAILURES:
            tries[entry.path] += 1
        elif entry.kind != "slept":
            del tries[entry.path]
        if entry.n > after:
            item = _item(entry, names, is_undone=entry.n in undone)
            item |= _told(entry, item, reading.seed, requested.get(entry.path, ()), tries[entry.path])
            if any(item["why"] in text for text in (item["text"], item["note"])):
                item["why"] = ""
            items.append(item)
    return items


def _undone(reading: RunHistory) -> set[int]:
    """Return the numbers of the entries that later retries have undone."""
    found: set[int] = set()
    least = len(reading.entries)  # the earliest entry from which the run was continued later
    for entry in reversed(reading.entries):
        if entry.n > least:
            found.add(entry.n)
        if (step := entry.undoes_to) is not None:
            least = min(least, step)
    return found


def name_processes(reading: RunHistory) -> dict[str, str]:
    """Return the display names of the processes, by path."""
    return {path: shown(process.name or path.rpartition(SEPARATOR)[2]) for path, process in reading.processes.items()}


def list_failures(items: Sequence[Item]) -> list[Item]:
    """Return the errors that caused a run's failure."""
    return [item for item in items if item["is_failure"] and not item["is_undone"]]


def _item(entry: HistoryEntry, names: dict[str, str], *, is_undone: bool) -> Item:
    own = next((move.step for move in entry.moves if move.path == entry.path), None)
    took_s = entry.at_s - entry.since_s if entry.since_s and entry.at_s else 0.0
    steps = [(move.path, names.get(move.path, move.path), move.step.trigger, move.step.to) for move in entry.moves]
    item = {
        "n": entry.n, "key": entry.key, "path": entry.path, "label": names.get(entry.path, entry.path),
        "kind": entry.kind, "took_s": max(0.0, took_s),
        "share": min(4.0, max(0.0, math.log10(took_s * 10))) if took_s > 0 else 0.0,  # 0.1 s to 1,000 s
        "state": own.to if own else "", "usage": entry.usage, "steps": steps,
        "paths": [path for path, *_ in steps], "raw": entry.data, "begun": entry.line.begun, "messages": [],
        "call": None, "text": "", "note": "", "why": shown(entry.why), "who": "", "verdict": "", "role": "event",
        "is_bad": False, "is_failure": bool(entry.why), "is_undone": is_undone,
    }  # fmt: skip
    if entry.by or prefix_of(entry.key) in ("ask", "answer"):
        verdict = _VERDICTS.get(entry.kind, entry.kind)
        item |= {"role": "person", "who": entry.by or "a person", "verdict": verdict, "is_bad": entry.kind in _BAD}
    return item


def _told(  # noqa: C901, PLR0911, PLR0912  # one a kind
    entry: HistoryEntry, item: Item, seed: Any, calls: Sequence[FunctionCall], tries: int
) -> Item:
    """Return the template values that only an entry of this kind has."""
    data = entry.data if isinstance(entry.data, dict) else {}
    reason = shown(data.get("reason") or "")
    match entry.kind:
        case "begun" if entry.path:
            return {"role": "begin"}
        case "begun":
            seed = seed if isinstance(seed, dict) else {}
            if "dialog" in seed:
                return {"role": "begin", "messages": _messages(seed["dialog"])}
            return {"role": "begin", "text": pretty(seed.get("data"), is_spread=True)}
        case "replied" if isinstance(entry.outcome, Replied):
            return _reply(item, entry.outcome)
        case "model_failed":
            failure = entry.outcome if isinstance(entry.outcome, ModelFailed) else None
            told = {} if failure is None else _failure(failure, tries, item["state"] == State.FAILED)
            return {"role": "error", "is_failure": True, **told}
        case "approved" | "denied" | "modified":
            text = pretty(data.get("arguments_json", "")) if entry.kind == "modified" else ""
            return {"call": _call(entry, calls), "note": reason, "text": text}
        case "returned" | "function_failed":
            text = pretty(data.get("text", ""))
            if prefix_of(entry.key) == "answer":
                return {"text": text, "note": f"the answer to {shown(subject_of(entry.key))}"}
            is_bad = entry.kind == "function_failed" or data.get("is_error") is True
            role = item["role"] if entry.by else "result"
            return {"role": role, "text": text, "call": _call(entry, calls), "is_bad": is_bad, "is_failure": is_bad}
        case "check_refused" | "check_failed":
            return {"role": "error", "text": reason or shown(data.get("text") or ""), "is_failure": True}
        case "cancelled" | "stopped" | "expired":
            role = item["role"] if entry.by else "error"
            return {"role": role, "text": reason, "is_failure": entry.kind != "stopped"}
        case "injected":
            return {"messages": _messages(data.get("messages"))}
        case "edited":
            return {"text": pretty(data.get("data"))}
        case kind if kind == RETRIED:
            return {"note": f"continues from entry {entry.undoes_to}; later entries do not count"}
    return {}


def _call(entry: HistoryEntry, calls: Sequence[FunctionCall]) -> Item:
    """Return the function call in the last reply that a key such as ``run:4.0`` refers to."""
    subject = subject_of(entry.key)
    number = subject.partition(":")[0].rpartition(".")[2]
    if "." in subject and number.isdecimal() and int(number) < len(calls):
        call = calls[int(number)]
        return {"name": shown(call.name), "arguments": pretty(call.arguments_json)}
    return {"name": shown(subject.partition("#")[0]), "arguments": ""}


def _reply(item: Item, outcome: Replied) -> Item:
    reply = outcome.reply
    found: Item = {
        "role": "assistant",
        "messages": [_message(reply.message)],
        "who": shown(reply.model or "model"),
    }
    if any(trigger == "parse_failed" for _, _, trigger, _ in item["steps"]):
        found |= {"note": "The answer was refused.", "is_failure": True}
    elif item["why"] and item["state"] != State.FAILED:
        found |= {"note": "A function call was refused."}
    if reply.refusal:
        found |= {"text": shown(reply.refusal), "note": "the model declined", "is_failure": True}
    return found


def _failure(outcome: ModelFailed, tries: int, is_last: bool) -> Item:
    error = outcome.error
    if error.kind == ProgramError.__name__:  # no model has failed
        return {"kind": "function_failed", "text": shown(error.message)}
    facts = [f"attempt {tries} failed"]
    facts += [f"status {error.status}"] if error.status is not None else []
    facts += [f"code {error.code}"] if error.code else []
    facts += [f"request {error.request_id}"] if error.request_id else []
    facts += [f"tried: {', '.join(error.tried)}"] if error.tried else []
    facts += [f"again after {span(outcome.delay_s)}"] if outcome.delay_s and not is_last else []
    return {"text": shown(f"{error.kind}: {error.message}"), "note": shown("; ".join(facts)), "who": error.model or ""}


def _messages(found: Any) -> list[Item]:
    """Read messages from JSON.  A message that cannot be read is shown unchanged."""
    shown_messages = []
    for one in found if isinstance(found, list) else ():
        try:
            shown_messages.append(_message(from_data(one, Message)))
        except ValueError:
            shown_messages.append({"role": "", "parts": [{"kind": "other", "text": pretty(one)}]})
    return shown_messages


def _message(message: Message) -> Item:
    return {"role": message.role, "parts": [*_parts(message.parts)]}


def _parts(parts: Iterable[Any]) -> Iterable[Item]:
    for part in parts:
        match part:
            case Text(text=text):
                yield {"kind": "text", "text": shown(text)}
            case FunctionCall(name=name, arguments_json=arguments):
                yield {"kind": "call", "name": shown(name), "text": pretty(arguments)}
            case FunctionResult(name=name, text=text):
                yield {"kind": "result", "name": shown(name), "text": pretty(text)}
            case Image(data=bytes(data), media_type=kind) if kind in _PICTURES and len(data) <= _MOST_IMAGE:
                yield {"kind": "image", "text": part.data_url()}
            case Reasoning(text=text):
                yield {"kind": "reasoning", "text": shown(text) or "hidden by the provider"}
            case _:
                name = getattr(part, "url", None) or getattr(part, "name", None) or ""
                yield {"kind": "other", "text": shown(f"[{type(part).__name__.lower()}] {name}")}


MOST_SAME = 100  # equal entries shown before the first difference
MOST_OTHERS = 500  # entries shown of each run after that
_MOST_DIFFERENCES = 40


class Row(NamedTuple):
    """Two entries with the same key, one from each run, or a single entry."""

    a: Item | None
    b: Item | None
    is_same: bool


class Comparison(NamedTuple):
    """The differences between two runs."""

    beginning: Sequence[tuple[str, str, str]]  # differences at the beginning: place, and both values as text
    n: int | None  # the number of the first entry that differs, or None
    entry: Sequence[tuple[str, str, str]]  # differences in that entry
    common: int  # the number of equal entries before it
    same: Sequence[Row]  # the last of these
    others: Sequence[Row]  # the entries after these
    more: int = 0  # the number of entries that are not shown, in the longer run


def diff_runs(a: RunHistory, b: RunHistory) -> Comparison:
    """Return how two runs differ, ignoring times, names and digests."""
    where: Divergence = divergence(a, b)
    common = max(len(a.entries), len(b.entries)) if where.n is None else where.n - 1
    after = max(0, common - MOST_SAME)
    rows = list(_align(a, b, after, common + MOST_OTHERS))
    same, others = rows[: common - after], rows[common - after :]
    more = max(0, max(len(a.entries), len(b.entries)) - common - MOST_OTHERS)
    return Comparison(_as_text(where.beginning), where.n, _as_text(where.entry), common, same, others, more)


def _align(a: RunHistory, b: RunHistory, after: int, until: int) -> Iterator[Row]:
    """Yield rows with the entries of both runs in order.  Entries with the same key share a row."""
    ones, others = a.entries[after:until], b.entries[after:until]
    items, other_items = tell_entries(a, after, until), tell_entries(b, after, until)
    matcher = SequenceMatcher(None, [one.key for one in ones], [other.key for other in others], autojunk=False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag == "equal":
            for x, y in zip(range(i, i_end), range(j, j_end), strict=True):
                yield Row(items[x], other_items[y], is_same(ones[x], others[y]))
        else:
            yield from (Row(item, None, False) for item in items[i:i_end])
            yield from (Row(None, item, False) for item in other_items[j:j_end])


def _as_text(found: Sequence[tuple[str, object, object]]) -> list[tuple[str, str, str]]:
    rows = [(shown(where), _value(a), _value(b)) for where, a, b in found[:_MOST_DIFFERENCES]]
    left = len(found) - len(rows)
    return [*rows, (f"and {left:,} more", "…", "…")] if left else rows


def _value(value: object) -> str:
    return "-" if value is None else shown(value) if isinstance(value, str) else pretty(value)


MOST_MESSAGES = 40  # the last messages of a dialog that are shown
_MOST_TEXT = 600  # characters shown of a message


def timeline(reading: RunHistory) -> dict[str, Any]:
    """Return, in a compact form, each process's moves and each entry's time and tokens."""
    processes = {
        path: [[move.n, move.step.source, move.step.to, move.step.trigger == RETRIED] for move in one.moves]
        for path, one in reading.processes.items()
    }
    spent = [
        [entry.at_s, entry.usage.input_tokens or 0, entry.usage.output_tokens or 0, entry.usage.cost_pico_usd or 0]
        for entry in reading.entries
    ]
    undone = [[entry.n, entry.undoes_to] for entry in reading.entries if entry.undoes_to is not None]
    return {"processes": processes, "spent": spent, "undone": undone, "began_s": reading.run.created_s}


class Past(NamedTuple):
    """A run's state after an entry, according to its agent's current code."""

    waits: list[str]  # the keys that it waited for
    messages: list[tuple[str, str, bool]]  # role, text as the model sees it, and whether it is pruned later
    earlier: int  # the number of messages before these
    data: str  # a flow's data as JSON; empty for an agent call
    problem: str = ""  # why it is unknown


def read_past(runs: Runs, run: str, n: int, definition: Any) -> Past:
    """Return a run's state after an entry."""
    try:
        process = runs.at(run, n, definition)
        waits = [effect.key for effect in process.effects]
        if isinstance(process, AgentCall):
            dialog, branch = [*process.record.dialog], process.record.branch
            texts: list[tuple[str, str, bool]] = [
                (one.role, shown(_text(one)), False) for one in dialog[-MOST_MESSAGES:]
            ]
            texts += [(one.role, shown(_text(one)), True) for one in branch[-MOST_MESSAGES:]]
            return Past(waits, texts, max(0, len(dialog) - MOST_MESSAGES), "")
        data = process.flow.data_json(process.data) if hasattr(process, "flow") else ""
    except FsmAgentError as error:
        return Past([], [], 0, "", shown(error))
    return Past(waits, [], 0, pretty(data, is_spread=True))


def _text(message: Any) -> str:
    calls = [f"{call.name}({json.dumps(call.arguments_json)[1:-1]})" for call in message.function_calls]
    results = [str(getattr(part, "text", "")) for part in message.parts]
    text = " ".join(filter(None, [*results, *calls]))
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
