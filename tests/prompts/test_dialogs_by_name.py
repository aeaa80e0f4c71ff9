"""Are dialogs kept by name, with the origin of each fork?"""

from __future__ import annotations

import json
import pickle

import pytest

from fsm_agent import Agent
from fsm_agent.errors import SnapshotError, UsageError
from fsm_agent.messages import Message
from fsm_agent.prompts import Dialog, Dialogs
from fsm_agent.testing import Script

SAID = Dialog([Message.of("system", "Be terse."), *[Message.of("user", text) for text in "abcd"]])


def some() -> Dialogs:
    """A draft with two forks, one of them forked again, and an unrelated dialog."""
    dialogs = Dialogs({"draft": SAID}).fork("draft", "critic", last_n=1).fork("draft", "editor")
    return dialogs.fork("critic", "second critic", last_n=0, first_k=1).put("notes", Dialog())


def test_the_overview_is_a_tree_of_names():
    assert some().overview().splitlines() == [
        "draft: 5 message(s)",
        "  critic: 2 message(s)",
        "    second critic: 1 message(s)",
        "  editor: 5 message(s)",
        "notes: 0 message(s)",
    ]
    assert Dialogs().overview() == ""


def test_a_fork_keeps_the_name_of_its_origin_alone():
    dialogs = some()
    agent = Agent(Script("It is dull."))
    answered = dialogs.put("critic", agent.call("And now?", after=dialogs["critic"]).dialog)
    assert (answered["critic"].tail, len(answered["draft"])) == (Message.of("assistant", "It is dull."), 5)
    assert answered.forks == dialogs.forks == {"critic": "draft", "editor": "draft", "second critic": "critic"}
    assert len(dialogs["critic"]) == 2, "the dialogs before are as they were"
    rest = dialogs.without("draft")
    assert rest.overview().splitlines() == [
        "critic: 2 message(s), from draft, which is gone",
        "  second critic: 1 message(s)",
        "editor: 5 message(s), from draft, which is gone",
        "notes: 0 message(s)",
    ]
    assert "draft" not in rest.without("editor").without("critic").without("second critic").to_json()


def test_json_and_back():
    dialogs = some()
    document = dialogs.to_json()
    again = Dialogs.from_json(document)
    assert again == dialogs
    assert again.overview() == dialogs.overview()
    assert again.to_json() == document
    assert json.loads(document)["forks"]["critic"] == "draft"
    assert pickle.loads(pickle.dumps(dialogs)) == dialogs
    assert again != dialogs.put("notes", SAID)


def test_a_damaged_document_is_refused():
    for document in (
        "[]",
        "{",
        '{"dialogs": {"a": 3}}',
        '{"dialogs": {"a": {"messages": []}}, "forks": {"b": "a"}}',
        '{"dialogs": {"a": {"messages": []}, "b": {"messages": []}}, "forks": {"b": "a", "a": "b"}}',
    ):
        with pytest.raises(SnapshotError):
            Dialogs.from_json(document)


def test_what_is_wrong_is_told():
    for act, name in [
        (lambda: some().fork("draff", "x"), "'draft'"),
        (lambda: some().fork("draft", "editor"), "'editor'"),
        (lambda: some().without("zzz"), "'zzz'; .*draft, critic, editor"),
        (lambda: some().put("", SAID), "''"),
        (lambda: some().put("a\nb", SAID), r"'a\\nb'"),
        (lambda: Dialogs({"a": SAID}, forks={"a": "a"}), "the dialog 'a'"),
        (lambda: some().without("draft").fork("critic", "draft"), "the dialog '"),
    ]:
        with pytest.raises(UsageError, match=name):
            act()
