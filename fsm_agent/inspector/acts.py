"""What the forms of the inspector do: answer, cancel, retry, fork and delete, as the commands ``fsm-agent runs`` do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fsm_agent.errors import UsageError
from fsm_agent.inspector.questions import outcome_of
from fsm_agent.store.errors import NotAsked
from fsm_agent.store.runs import Runs

Form = Mapping[str, str]
Act = Callable[[Runs, str, Form, str, Any], str]  # runs, the name of one, the form, who, its code: which is shown then


def answer(runs: Runs, run: str, form: Form, by: str, definition: Any) -> str:
    """Answer a question.

    Raises:
        FormError: A field is wrong.
        NotAsked: The question is not open any more.
    """
    key = form.get("key", "")
    question = next((one for one in runs.store.get(run).waits if one.key == key), None)
    if question is None:
        raise NotAsked(f"the run {run!r} no longer asks {key!r}")
    runs.answer(run, {key: outcome_of(question, form)}, by=by)
    return run


def cancel(runs: Runs, run: str, form: Form, by: str, definition: Any) -> str:
    """Cancel a run; its next driver ends it."""
    runs.cancel(run, form.get("reason", ""), by=by)
    return run


def retry(runs: Runs, run: str, form: Form, by: str, definition: Any) -> str:
    """Continue a failed run."""
    runs.retry(run, by=by)
    return run


def fork(runs: Runs, run: str, form: Form, by: str, definition: Any) -> str:
    """Make another run that continues from an entry; with the code of its agent, it rests as the run did."""
    at, name = form.get("at", ""), form.get("name", "").strip()
    if not name:
        raise UsageError("expected a name for the fork, got none")
    if not (at.isascii() and at.isdigit() and len(at) < 10):
        raise UsageError(f"entry: expected a number, got {at!r:.200}")
    return str(runs.fork(run, int(at), name, definition, by=by))


def delete(runs: Runs, run: str, form: Form, by: str, definition: Any) -> str:
    """Delete a run whose name was typed."""
    if form.get("confirm") != run:
        raise UsageError(f"expected the name of the run to delete it, got another; type {run!r}")
    if conversation := runs.needed_by(run):
        raise UsageError(f"the run stays: the conversation {conversation!r} cannot be read without it")
    runs.store.delete(run)
    return ""


ACTS: dict[str, Act] = {"answer": answer, "cancel": cancel, "retry": retry, "fork": fork, "delete": delete}
