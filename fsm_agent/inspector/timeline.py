"""Where each process of a run was after each entry, for a page to go back and forth; and one moment in full."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from fsm_agent.call.call import AgentCall
from fsm_agent.errors import FsmAgentError
from fsm_agent.inspector.wording import pretty, shown
from fsm_agent.store.reading import RETRIED, RunReading
from fsm_agent.store.runs import Runs

MOST_MESSAGES = 40  # of a dialog, the last ones
_MOST_TEXT = 600  # characters of one


def timeline(reading: RunReading) -> dict[str, Any]:
    """Return the moves of each process, and the time and tokens of each entry, as small as they can be."""
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
    """A run as it was after an entry, by the code of its agent."""

    waits: list[str]  # the keys that it waited for
    messages: list[tuple[str, str, bool]]  # role and text, as the model would see them; whether it is pruned later
    earlier: int  # how many messages there are before them
    data: str  # of a flow, as JSON; empty: it is none
    problem: str = ""  # why it cannot be known


def past(runs: Runs, run: str, n: int, definition: Any) -> Past:
    """Return a run as it was after an entry."""
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
