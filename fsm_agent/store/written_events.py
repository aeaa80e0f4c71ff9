"""Events of a run as its journal has them, for code that takes other steps by now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsm_agent.call.effects import CallModel, RunFunction
from fsm_agent.call.outcomes import FunctionFailed, Replied, Returned
from fsm_agent.call.process import SEPARATOR, prefix_of
from fsm_agent.errors import JournalError
from fsm_agent.messages.event import Event, FunctionEnded, Inside, ReplyCompleted
from fsm_agent.messages.message import FunctionCall
from fsm_agent.store.claiming import Claiming
from fsm_agent.store.reading import RETRIED, EntryReading, read


def written_events(runs: Claiming, run: str, after: int, end: int, *, has_functions: bool) -> Iterator[Event]:
    """Yield steps, replies and, if asked for, results of functions, of the entries behind ``after`` up to ``end``.

    There are as many steps as the code took then.  What an agent inside returned is not in the journal.

    Raises:
        JournalError: The journal is damaged, or was begun anew.
    """
    found = read(runs, run)
    if not found.is_sound or len(found.entries) < end:
        raise JournalError(f"the journal of the run {run!r} is unreadable before entry {end}: {found.verdict}")
    asked: dict[str, Sequence[FunctionCall]] = {}  # by path, in its last reply
    for entry in found.entries[:end]:
        reply = None  # of a model; listeners hear of no summary
        if isinstance(entry.outcome, Replied) and prefix_of(entry.key) == CallModel.prefix:
            reply = entry.outcome.reply
            asked[entry.path] = [part for part in reply.message.parts if isinstance(part, FunctionCall)]
        if entry.n <= after or entry.kind == RETRIED:
            continue
        if reply is not None:
            yield _inside(entry.path, ReplyCompleted(reply))
        ended = _ended(entry, asked.get(entry.path, ())) if has_functions else None
        for move in entry.moves:
            if ended is not None and move.path == entry.path:
                yield _inside(move.path, ended)
                ended = None
            yield _inside(move.path, move.step)


def _inside(path: str, event: Event) -> Event:
    return Inside(path, event) if path else event


def _ended(entry: EntryReading, asked: Sequence[FunctionCall]) -> FunctionEnded | None:
    """Return the end of a function; None: the entry is of something else.

    Args:
        entry: The entry.
        asked: What the model had asked for; a state of a flow was asked for by none.
    """
    outcome = entry.outcome
    if not isinstance(outcome, Returned | FunctionFailed) or prefix_of(entry.key) != RunFunction.prefix:
        return None
    id = entry.key.rpartition(SEPARATOR)[2].partition(":")[2]
    number = id.rpartition(".")[2]
    is_asked = number.isdecimal() and "#" not in id and int(number) < len(asked)
    name = asked[int(number)].name if is_asked else id.partition("#")[0]
    is_error = isinstance(outcome, FunctionFailed) or outcome.is_error
    return FunctionEnded(id, name, outcome.text, is_error, 0.0)
