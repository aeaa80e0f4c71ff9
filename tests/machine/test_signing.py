"""Is a signed snapshot taken as it was written, and in no other way?"""

from __future__ import annotations

import hashlib
import hmac
import json
import traceback

import pytest
from support.agent_calls import PROMPT, waiting

from fsm_agent.agents import Agent
from fsm_agent.errors import SnapshotError, UsageError
from fsm_agent.lifecycle import restore, snapshot
from fsm_agent.testing import Script

KEY = "a key of the tests, which is long enough"
OTHER = "b key of the tests, which is long enough"


@pytest.mark.parametrize("key", [KEY, KEY.encode(), b"\x00\xff" * 16])
def test_it_is_read_with_the_key_that_it_was_written_with(key):
    call = waiting()
    document = snapshot(call, signing_key=key)
    assert restore(document, PROMPT, signing_key=key).record == call.record
    assert restore(document.encode() + b"\n", PROMPT, signing_key=key).record == call.record


def test_the_signature_is_that_of_the_unsigned_document():
    plain, signed = snapshot(waiting()), snapshot(waiting(), signing_key=KEY)
    signature = json.loads(signed).pop("signature")
    assert signature == hmac.new(KEY.encode(), plain.encode(), hashlib.sha256).hexdigest()
    assert signed == f'{{"signature":"{signature}",{plain[1:]}'


SIGNED = snapshot(waiting(), signing_key=KEY)


@pytest.mark.parametrize(
    ("document", "key", "says"),
    [
        (snapshot(waiting()), KEY, "the snapshot is not signed, and signing_key is given"),
        (SIGNED, OTHER, "signed with another signing_key, or changed afterwards"),
        (SIGNED.replace('"path\\": \\"x', '"path\\": \\"y'), KEY, "signed with another signing_key, or changed"),
        (SIGNED.replace('"signature":"', '"signature":"0')[:-1], KEY, "is not signed"),
        (SIGNED[:-1] + ',"prompt":"walk"}', KEY, "signed with another signing_key, or changed"),
        (SIGNED[:60], KEY, "is not signed"),
        (SIGNED[:80], KEY, "signed with another signing_key, or changed"),
        (json.dumps(json.loads(SIGNED), indent=1), KEY, "a signature is lost by reformatting"),
        ("", KEY, "is not signed"),
        ('{"signature":"' + "é" * 32 + '","version":1}', KEY, "signed with another signing_key, or changed"),
        (SIGNED, None, "the snapshot is signed: pass the signing_key that it was written with"),
        (json.dumps(json.loads(SIGNED), indent=1), None, "object contains unknown field signature"),
    ],
)
def test_every_other_document_is_refused(document, key, says):
    with pytest.raises(SnapshotError, match=says):
        restore(document, PROMPT, signing_key=key)


@pytest.mark.parametrize("position", range(0, len(SIGNED), 97))
def test_no_character_can_be_changed(position):
    changed = SIGNED[:position] + chr(ord(SIGNED[position]) ^ 1) + SIGNED[position + 1 :]
    with pytest.raises(SnapshotError):
        restore(changed, PROMPT, signing_key=KEY)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("", "signing_key has 0 bytes: 32 bytes or more would be right"),
        ("hunter2", "signing_key has 7 bytes: 32 bytes or more would be right"),
        (b"x" * 31, "signing_key has 31 bytes: 32 bytes or more would be right"),
        (12345, "signing_key is of type int: 32 bytes or more would be right"),
        (["hunter2"], "signing_key is of type list: 32 bytes or more would be right"),
    ],
)
def test_a_key_that_is_none_is_refused_and_not_shown(key, says):
    for use in (lambda: snapshot(waiting(), signing_key=key), lambda: restore(SIGNED, PROMPT, signing_key=key)):
        with pytest.raises(UsageError) as caught:
            use()
        assert str(caught.value).startswith(says)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("document", [None, 10**12, {}, [SIGNED]])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_document_that_is_no_text_is_refused(document, key):
    with pytest.raises(UsageError, match=r"the document is .*: what snapshot\(\) returned would be right"):
        restore(document, PROMPT, signing_key=key)


def test_the_key_is_nowhere():
    agent = Agent(Script("hi"))
    document = snapshot(agent.seed("Hello."), signing_key=KEY)
    call = agent.restore(document, signing_key=KEY)
    with pytest.raises(SnapshotError) as caught:
        agent.restore(document, signing_key=OTHER)
    for text in (document, repr(call.record), repr(agent), snapshot(call), *traceback.format_exception(caught.value)):
        assert KEY not in text
        assert OTHER not in text
    assert agent.run(call).output == "hi"
