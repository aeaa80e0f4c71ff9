"""An upgrade of runs for a flow whose states were renamed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from fsm_agent.flows.errors import FlowError
from fsm_agent.validation import shown

_OF_STEP = re.compile(r"((?:[a-z]+:)?)([^#:/]+)(#.*)", re.DOTALL)  # answer:review#3, triage#1/ask:2.0
_OF_MEMBER = re.compile(r"((?:[a-z]+:)?)([^#:/]+)([:/].*)?", re.DOTALL)  # answer:warmly, warmly/model:0

_BY_KEY = ("once", "children", "settled")  # parts of a record
_BY_STATE = ("first_due_at_s", "inbox")


def renamed(**states: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return an upgrade in which states have new names.

    For example, ``upgrades={1: renamed(person="customer")}``.

    States are renamed wherever the record of a run names them: its present state, the keys that it waits for, its
    members, and its trace.  Data and answers stay as they are, and so do flows inside, which have upgrades of their
    own.

    Args:
        states: New names by old ones; two states may swap names.

    Raises:
        FlowError: No name is given, or one is not a name for a state.

    Examples:
        >>> upgrade = renamed(look="search")                        # for Flow(…, version=2, upgrades={1: upgrade})
        >>> callable(upgrade)
        True
    """
    if not states:
        raise FlowError("renamed: expected old names with new ones, as in renamed(old='new'), got none")
    for old, new in states.items():
        if not isinstance(new, str) or not new.isidentifier():
            raise FlowError(f"renamed: expected a Python identifier for {old}, got {shown(new)}")

    def upgrade(record: dict[str, Any]) -> dict[str, Any]:
        stands = record.get("state", "")
        return {**_renamed(record, states, _OF_STEP), "state": states.get(stands, stands)}

    return upgrade


def _renamed(record: Mapping[str, Any], states: Mapping[str, str], pattern: re.Pattern[str]) -> dict[str, Any]:
    """Return the record of a run, or of members, whose keys match a pattern, with the new names."""

    def named(key: str) -> str:
        found = pattern.fullmatch(key)
        if found is None or found[2] not in states:
            return key
        return f"{found[1]}{states[found[2]]}{found[3] or ''}"

    made = dict(record)
    for parts, rename in ((_BY_KEY, named), (_BY_STATE, lambda name: states.get(name, name))):
        made |= {part: {rename(key): value for key, value in made[part].items()} for part in parts if part in made}
    for key, child in made.get("children", {}).items():
        if "begun" in child and "flow" not in child:  # members, whose states are states of this flow
            made["children"][key] = _renamed(child, states, _OF_MEMBER)
    is_of_flow = pattern is _OF_STEP
    if "trace" in made:
        made["trace"] = [_step(step, states if is_of_flow else {}, named) for step in made["trace"]]
    if (ending := made.get("ending")) is not None:
        made["ending"] = {**ending, "state": states.get(ending["state"], ending["state"])}
    return made


def _step(step: Mapping[str, Any], states: Mapping[str, str], named: Callable[[str], str]) -> dict[str, Any]:
    ends = {end: states.get(step[end], step[end]) for end in ("source", "to")}
    return {**step, **ends, **({"key": named(step["key"])} if step.get("key", "begin") != "begin" else {})}
