"""Does a fingerprint change with all that a prompt says, offers and expects, and with nothing else?"""

from __future__ import annotations

from fsm_agent import Agent
from fsm_agent.call import restore, snapshot
from fsm_agent.functions import Function, function
from fsm_agent.messages import CodeExecution, HostedMCP, WebSearch
from fsm_agent.prompts import Prompt, tagged
from fsm_agent.testing import Script


@function
def look(where: str) -> str:
    """Look somewhere."""
    return where


def shout(*, error_message, attempt):
    return error_message


DOCS = HostedMCP("docs", "https://mcp.example.org/v1")
PLAIN = Prompt("Count {{ things }}.", path="p")
SAID = "Count {{ things }}."
CHANGES = {
    "template": {"template": "Count {{ things }}!"},
    "path": {"path": "q"},
    "output": {"output": int},
    "parser": {"parser": tagged("answer")},
    "another parser": {"parser": tagged("number")},
    "a function as parser": {"parser": len},
    "another one": {"parser": ascii},
    "two stages": {"mode": "two_stage"},
    "another mode": {"mode": "function"},
    "on_exception": {"on_exception": "{{ error_message }}"},
    "on_exception, a function": {"on_exception": shout},
    "on_exception, a prompt": {"on_exception": Prompt("{{ error_message }}")},
    "on_exception, another prompt": {"on_exception": Prompt("{{ error_message }}", output=int)},
    "on_interrupt": {"on_interrupt": "It is {{ call_results }}"},
    "on_final": {"on_final": "Stop."},
    "on_loop": {"on_loop": "Stop."},
    "on_form": {"on_form": "Now."},
    "a function": {"functions": [look]},
    "its name": {"functions": [Function.of(look, name="see")]},
    "its description": {"functions": [Function.of(look, description="See.")]},
    "its policy": {"functions": [Function.of(look, needs_approval=True)]},
    "its version": {"functions": [Function.of(look, version="2")]},
    "its repetition": {"functions": [Function.of(look, repeatable=not look.repeatable)]},
    "its calls": {"functions": [Function.of(look, max_calls=3)]},
    "its failures": {"functions": [Function.of(look, max_failures=3)]},
    "its only run": {"functions": [Function.of(look, once=True)]},
    "its parameters": {"functions": [Function(name="look", description="Look somewhere.")]},
    "two functions": {"functions": [look, Function(name="see")]},
    "two in order": {"functions": [look, Function(name="see", depends_on=["look"])]},
    "a hosted tool": {"hosted_tools": [WebSearch()]},
    "its options": {"hosted_tools": [WebSearch(max_uses=3)]},
    "another": {"hosted_tools": [CodeExecution()]},
    "a hosted server": {"hosted_tools": [DOCS]},
    "its address": {"hosted_tools": [DOCS.changed(url="https://mcp.example.org/v2")]},
    "its tools": {"hosted_tools": [DOCS.changed(allowed_tools=("find",))]},
    "settings": {"settings": {"temperature": 0}},
    "their values": {"settings": {"temperature": 1}},
}


def test_it_tells_all_of_these_apart():
    prints = {what: PLAIN.extend(**change).fingerprint for what, change in CHANGES.items()}
    every = [PLAIN.fingerprint, *prints.values()]
    assert len({*every}) == len(every), prints
    assert all(len(text) == 16 for text in every)


def test_it_is_the_same_for_the_same():
    for change in CHANGES.values():
        assert PLAIN.extend(**change).fingerprint == PLAIN.extend(**change).fingerprint
        assert Prompt(**{"template": SAID, "path": "p", **change}).fingerprint == PLAIN.extend(**change).fingerprint


def test_a_token_may_be_replaced():
    old = DOCS.changed(url="https://mcp.example.org/k3y0123456789abcdef/v1?key=old", authorization="old-token")
    new = DOCS.changed(url="https://mcp.example.org/n3w9876543210fedcba/v1?key=new", authorization="new-token")
    prints = {PLAIN.extend(hosted_tools=[tool]).fingerprint for tool in (old, new)}
    assert len(prints) == 1


def test_it_is_the_same_in_each_process_and_version():
    """Runs that began before go on without a warning."""
    assert PLAIN.fingerprint == "b13a13d2c83d4ce5"


def test_a_call_that_is_restored_with_another_prompt_tells_it():
    one = Agent(Script()).prepare(PLAIN(things="cats"))
    changed = PLAIN.extend(template="Count all {{ things }}.")
    assert restore(snapshot(one), PLAIN).prompt_change is None
    change = restore(snapshot(one), changed).prompt_change
    assert (change.path, change.before, change.after) == ("p", PLAIN.fingerprint, changed.fingerprint)
    assert PLAIN.fingerprint in str(change)
