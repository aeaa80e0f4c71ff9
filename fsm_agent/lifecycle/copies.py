"""Copies of processes that go their own way, under another id.

A process inside of another has the id of the outer one and its path, and the idempotency keys of functions begin with
the id.  So a copy that keeps the id would repeat the keys of its original.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.errors import UsageError
from fsm_agent.lifecycle.effects import FindOut
from fsm_agent.machine.process import SEPARATOR, Process

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")


def check_forkable(process: Process, problem: str) -> None:
    """Refuse to fork a process in the midst of a function that must not run twice.

    The driver of the process knows, or will ask, what became of the function.  The fork would know nothing, and
    ``reconcile`` could not find out for it: the function has begun under a key with the id of the process.

    Args:
        process: The process.
        problem: The first words of the error.

    Raises:
        UsageError: There is such a function.
    """
    for effect in process.effects:
        if effect.prefix == FindOut.prefix or getattr(effect, "is_once", False):
            raise UsageError(
                f"{problem}: {effect.key!r} must not run twice, it has begun, and its result is unknown; choose a step"
                " before its start or after its end"
            )


def with_id(document: str, id: str) -> str:
    """Return the snapshot of a process with another id, here and in all processes inside.

    Args:
        document: The snapshot, of a process that has begun.
        id: The new id.
    """
    data = json.loads(document)
    record = data["record"]
    return json.dumps({**data, "record": _renamed(record, record["id"], id)}, ensure_ascii=False)


def _renamed(record: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return a record, whose data may hold the same text, with the new id."""
    made = dict(record)
    own = made.get("id", "")
    if own == old or own.startswith(f"{old}{SEPARATOR}"):
        made["id"] = f"{new}{own[len(old) :]}"
    if made.get("successor") is not None:
        made["successor"] = _renamed(made["successor"], old, new)
    if "children" in made:
        made["children"] = {name: _renamed_child(child, old, new) for name, child in made["children"].items()}
    return made


def _renamed_child(child: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    if "dialog" not in child and isinstance(inner := child.get("record"), dict):  # as `ProcessRecord` is written
        return {**child, "record": _renamed(inner, old, new)}
    return _renamed(child, old, new)
