"""The store in which ``fsm-agent ask`` keeps its calls unless it is told otherwise."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsm_agent.errors import ConfigError, FsmAgentError, UsageError
from fsm_agent.machine.journal import header_of

if TYPE_CHECKING:
    from fsm_agent.cli.terminal import Screen
    from fsm_agent.store.runs import Runs
    from fsm_agent.store.store import Run

VARIABLE = "FSM_AGENT_LOGS"  # "off", or the path of another file
AGENT = "ask"  # the name of the agent whose runs they are
_FILE = "logs.db"


def log_file() -> Path | None:
    """Return the file; None: nothing is kept.

    It is ``fsm_agent/logs.db`` in the folder for data of users: ``$XDG_DATA_HOME``, or ``~/.local/share``.

    Raises:
        ConfigError: There is no home directory.
    """
    given = os.environ.get(VARIABLE, "")
    if given.lower() == "off":
        return None
    if given:
        return Path(given)
    xdg = os.environ.get("XDG_DATA_HOME", "")
    try:
        if os.path.isabs(xdg):
            root = Path(xdg)
        elif sys.platform == "win32":
            root = Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser()
        else:
            root = Path("~/.local/share").expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"expected a home directory for logs, got none; set XDG_DATA_HOME, or {VARIABLE}=off"
        ) from error
    return root / "fsm_agent" / _FILE


@contextmanager
def logged(screen: Screen, *, is_needed: bool) -> Iterator[tuple[Runs | None, str]]:
    """Yield the runs of the log file and its path; None: nothing is kept.

    Args:
        screen: Is told if the file cannot be written.
        is_needed: That is an error.

    Raises:
        UsageError: Nothing is kept, and that is an error.
    """
    with ExitStack() as stack:
        runs, place = None, ""
        try:
            runs, place = _opened(stack)
        except (FsmAgentError, OSError) as error:
            if is_needed:
                raise
            screen.tell(f"this call is not kept: {error}; set {VARIABLE}=off to keep none")
        if runs is None and is_needed:
            raise UsageError(f"nothing is kept, since {VARIABLE} is off; pass --store runs.db")
        yield runs, place


def _opened(stack: ExitStack) -> tuple[Runs | None, str]:
    path = log_file()
    if path is None:
        return None, ""
    from fsm_agent.cli.runs.reading import opened

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return stack.enter_context(opened(str(path), must_exist=False)), str(path)


def newest(runs: Runs) -> Iterator[Run]:
    """Return the calls that changed last, the newest first."""
    from fsm_agent.store.listing import each_listed

    return each_listed(runs.store, agent=AGENT)


def last_conversation(runs: Runs) -> tuple[str, dict[str, Any]]:
    """Return the name of the conversation whose turn changed last, and the ``extra`` of that turn.

    Raises:
        UsageError: No call is part of a conversation.
    """
    for run in newest(runs):
        header = header_of(runs.store.load(run.id, after=None).header)
        if header.conversation:
            return header.conversation, dict(header.extra)
    raise UsageError("-c: expected a conversation to continue, got none; ask the first question without -c")
