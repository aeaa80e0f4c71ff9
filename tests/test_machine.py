"""Does the lean event do what `transitions` does?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transitions import Machine, MachineError

from fsm_agent.machine import MACHINE, LeanMachine
from fsm_agent.record import State
from fsm_agent.table import ROWS

TRIGGERS = ("a", "b", "c")
states = st.sampled_from(list(State))
rows = st.lists(
    st.tuples(
        st.sampled_from(TRIGGERS),
        st.one_of(states, st.lists(states, min_size=1, max_size=3, unique=True)),
        st.none() | states,
        st.sampled_from([None, "yes", "no", "one", "error"]),
        st.sampled_from([None, "note", "error"]),
    ),
    max_size=12,
)


class Model:
    """What both machines drive: it notes what it was asked, in order."""

    def __init__(self) -> None:
        self.state: Any = State.SEEDED
        self.log: list[Any] = []


def guard(kind: str) -> Any:
    def condition(model: Model, argument: int) -> Any:
        model.log.append((kind, argument))
        if kind == "error":
            raise KeyError(argument)
        return {"yes": True, "no": False, "one": 1}[kind]

    return condition


def action(kind: str, number: int) -> Any:
    def before(model: Model, argument: int) -> None:
        model.log.append((number, argument, model.state))
        if kind == "error":
            raise LookupError(number)

    return before


def built(cls: type[Machine], table: list[Any]) -> Machine:
    return cls(
        model=None,
        states=State,
        initial=None,
        auto_transitions=False,
        transitions=[
            {
                "trigger": t,
                "source": s,
                "dest": d,
                "conditions": guard(g) if g else None,
                "before": action(a, i) if a else None,
            }
            for i, (t, s, d, g, a) in enumerate(table)
        ],
    )


def through_machine(machine: Machine, triggers: list[str]) -> list[Any]:
    model, seen = Model(), []
    for number, trigger in enumerate(triggers):
        try:
            if trigger not in machine.events:
                seen.append("unknown")
                continue
            seen.append((machine.events[trigger].trigger(model, model, number), model.state))
        except (KeyError, LookupError, MachineError) as error:
            seen.append((type(error), model.state))
    return [seen, model.log]


def through_dict(table: list[Any], triggers: list[str]) -> list[Any]:
    """The rules in plain Python, without `transitions`."""
    plain: dict[tuple[str, State], list[Any]] = {}
    for i, (t, s, d, g, a) in enumerate(table):
        for source in s if isinstance(s, list) else [s]:
            plain.setdefault((t, source), []).append((d, g, a, i))
    known = {row[0] for row in table}
    model, seen = Model(), []

    def step(trigger: str, number: int) -> Any:
        if (trigger, model.state) not in plain:
            raise MachineError("")
        for d, g, a, i in plain[trigger, model.state]:
            if g is not None and guard(g)(model, number) != True:  # noqa: E712  # just as `transitions` compares
                continue
            if a is not None:
                action(a, i)(model, number)
            model.state = model.state if d is None else d
            return True
        return False

    for number, trigger in enumerate(triggers):
        if trigger not in known:
            seen.append("unknown")
            continue
        try:
            seen.append((step(trigger, number), model.state))
        except (KeyError, LookupError, MachineError) as error:
            seen.append((type(error), model.state))
    return [seen, model.log]


@settings(max_examples=400, deadline=None)
@given(rows, st.lists(st.sampled_from(TRIGGERS), max_size=12))
def test_lean_vanilla_and_a_plain_dict_agree(table, triggers):
    vanilla = through_machine(built(Machine, table), triggers)
    assert through_machine(built(LeanMachine, table), triggers) == vanilla
    assert through_dict(table, triggers) == vanilla


def test_the_machine_is_built_of_the_rows_and_of_nothing_else():
    assert set(MACHINE.events) == {row[0] for row in ROWS}
    assert MACHINE.models == []
    assert not [name for name in MACHINE.events if name.startswith("to_")]


def test_an_impossible_trigger_is_an_error_that_names_both():
    model = Model()
    with pytest.raises(MachineError, match=r"slept.*SEEDED"):
        MACHINE.events["slept"].trigger(model, model, None)
    assert model.state is State.SEEDED
