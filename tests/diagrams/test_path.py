"""Is the path of a run told right from its triggers?"""

from __future__ import annotations

from random import Random

from support import agent_calls as walks

from fsm_agent.diagrams.path import path
from fsm_agent.messages import Stepped


def known(step: Stepped) -> Stepped:
    """What a journal knows of a step."""
    return step.changed(source="", to="", guard="")


def states(steps):
    """What can be told of the steps: not the state in which something came that nobody had asked for."""
    asked = [step.key != "" for step in steps] + [True]
    return [
        (step.source if asked[n] else "?", step.trigger, step.to if asked[n + 1] else "?")
        for n, step in enumerate(steps)
    ]


def walk(rng: Random):
    call = walks.seeded(walks.limits(rng), depth=rng.choice([0, 0, 2]), prompt=rng.choice([walks.PROMPT, walks.STAGED]))
    for _ in range(rng.choice([4, 12, 40])):
        if not call.effects:
            break
        call.advance(*walks.outcome(rng, rng.choice(call.effects), call.state))
    return call


def test_triggers_and_keys_and_the_last_state_are_enough():
    rng = Random(1)
    for _ in range(300):
        call = walk(rng)
        trace = call.record.trace
        found = path([known(step) for step in trace], call.state)
        assert found is not None
        assert states(found) == states(trace)
        assert all(step.guard in ("", there.guard) for step, there in zip(found, trace, strict=True))


def test_without_the_last_state_all_but_the_last_step_are_right():
    rng = Random(17)
    for _ in range(100):
        trace = walk(rng).record.trace
        found = path([known(step) for step in trace])
        assert found is not None
        assert states(found)[:-1] == states(trace)[:-1]


def test_what_no_call_does_has_no_path():
    steps = [Stepped("", trigger, "", key, 0.0) for trigger, key in [("begun", "begin"), ("slept", "sleep:0")]]
    assert path(steps) is None
    assert path([Stepped("", "no_such_trigger", "", "", 0.0)]) is None
    assert path([]) == []
