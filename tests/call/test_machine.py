"""A machine of `transitions` walks a table as a plain dict would."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from transitions import Machine

from fsm_agent.call import ROWS, State, machine_of, take_row
from fsm_agent.errors import IllegalTrigger

TRIGGERS = ("a", "b", "c")
states = st.sampled_from(list(State))
rows = st.lists(
    st.tuples(
        st.sampled_from(TRIGGERS),
        st.one_of(states, st.lists(states, min_size=1, max_size=3, unique=True)),
        st.none() | states,
        st.sampled_from([None, "yes", "no", "one", "error"]),
        st.sampled_from(["note", "error"]),
    ),
    max_size=12,
)


class Model:
    """A record, which notes what its guards and actions are given, in order."""

    def __init__(self) -> None:
        self.state: Any = State.SEEDED
        self.log: list[Any] = []
        self.after: Any = None
        self.guard = ""


def guard(kind: str) -> Any:
    def rule(model: Model, event: int, prompt: str) -> Any:
        model.log.append((kind, event, prompt))
        if kind == "error":
            raise KeyError(event)
        return {"yes": True, "no": False, "one": 1}[kind]

    rule.__name__ = kind
    return rule


def action(kind: str, number: int) -> Any:
    def rule(model: Model, event: int, prompt: str) -> Any:
        model.log.append((number, event, prompt, model.state))
        if kind == "error":
            raise LookupError(number)
        return number

    return rule


def built(table: list[Any]) -> Machine:
    return machine_of(
        [(t, s, d, guard(g) if g else None, action(a, i)) for i, (t, s, d, g, a) in enumerate(table)], State
    )


def step(machine: Machine, trigger: str, model: Model, event: Any, owner: Any) -> bool:
    """Take a row, as a call does: what was moved counts when the row was taken."""
    try:
        row = take_row(machine, trigger, model, event, owner)
    except IllegalTrigger:
        rows = machine.get_transitions(trigger, str(model.state))
        if rows and all(row.conditions for row in rows):
            return False
        raise
    model.state, model.after, model.guard = row.state, row.after, row.guard
    return True


def through_machine(machine: Machine, triggers: list[str]) -> list[Any]:
    model, seen = Model(), []
    for number, trigger in enumerate(triggers):
        try:
            if trigger not in machine.events:
                seen.append("unknown")
                continue
            seen.append((step(machine, trigger, model, number, "prompt"), model.state, model.after, model.guard))
        except (KeyError, LookupError, IllegalTrigger) as error:
            seen.append((type(error), model.state, model.after, model.guard))
    return [seen, model.log]


def through_dict(table: list[Any], triggers: list[str]) -> list[Any]:
    """The rules in plain Python, without `transitions`."""
    plain: dict[tuple[str, State], list[Any]] = {}
    for i, (t, s, d, g, a) in enumerate(table):
        for source in s if isinstance(s, list) else [s]:
            plain.setdefault((t, source), []).append((d, g, a, i))
    known = {row[0] for row in table}
    model, seen = Model(), []

    def by_dict(trigger: str, number: int) -> Any:
        if (trigger, model.state) not in plain:
            raise IllegalTrigger("")
        for d, g, a, i in plain[trigger, model.state]:
            if g is not None and not guard(g)(model, number, "prompt"):
                continue
            model.after = action(a, i)(model, number, "prompt")
            model.guard = g or ""
            model.state = model.state if d is None else d
            return True
        return False

    for number, trigger in enumerate(triggers):
        if trigger not in known:
            seen.append("unknown")
            continue
        try:
            seen.append((by_dict(trigger, number), model.state, model.after, model.guard))
        except (KeyError, LookupError, IllegalTrigger) as error:
            seen.append((type(error), model.state, model.after, model.guard))
    return [seen, model.log]


@examples(150)
@given(rows, st.lists(st.sampled_from(TRIGGERS), max_size=12))
def test_the_machine_and_a_plain_dict_agree(table, triggers):
    assert through_machine(built(table), triggers) == through_dict(table, triggers)


def test_an_impossible_trigger_is_an_error_that_names_both():
    model, machine = Model(), machine_of(ROWS, State)
    with pytest.raises(IllegalTrigger, match=r"slept.*Seeded"):
        step(machine, "slept", model, None, "prompt")
    assert model.state is State.SEEDED


def test_states_and_records_may_be_anybodys():
    class Light(StrEnum):
        RED = "red"
        GREEN = "green"

    class Lamp:
        state, hours = Light.RED, 0

    def may_change(lamp: Lamp, event: int, owner: int) -> bool:
        return event < owner

    rows = [("switched", (Light.RED,), Light.GREEN, may_change, lambda lamp, a, d: lamp.hours + a)]
    machine, lamp = machine_of(rows, Light), Lamp()
    with pytest.raises(IllegalTrigger, match="may_change"):
        take_row(machine, "switched", lamp, 9, 5)
    with pytest.raises(IllegalTrigger, match="no row"):
        take_row(machine, "broke", lamp, 3, 5)
    row = take_row(machine, "switched", lamp, 3, 5)
    assert (row.state, row.after, row.guard) == (Light.GREEN, 3, "may_change")
    assert type(row.state) is Light
    assert lamp.state is Light.RED
