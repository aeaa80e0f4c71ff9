"""Is a signed snapshot accepted exactly as it was written, and in no other form?"""

from __future__ import annotations

import hashlib
import hmac
import json
import traceback

import pytest
from support.agent_calls import PROMPT, waiting

from fsm_agent.agents import Agent
from fsm_agent.call import restore, snapshot
from fsm_agent.errors import SnapshotError, UsageError
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
    ("document", "key"),
    [
        (snapshot(waiting()), KEY),
        (SIGNED, OTHER),
        (SIGNED.replace('"path\\": \\"x', '"path\\": \\"y'), KEY),
        (SIGNED.replace('"signature":"', '"signature":"0')[:-1], KEY),
        (SIGNED[:-1] + ',"prompt":"walk"}', KEY),
        (SIGNED[:60], KEY),
        (SIGNED[:80], KEY),
        (json.dumps(json.loads(SIGNED), indent=1), KEY),
        ("", KEY),
        ('{"signature":"' + "é" * 32 + '","version":1}', KEY),
        (SIGNED, None),
        (json.dumps(json.loads(SIGNED), indent=1), None),
    ],
)
def test_every_other_document_is_refused(document, key):
    with pytest.raises(SnapshotError, match="sign"):
        restore(document, PROMPT, signing_key=key)


def test_no_character_can_be_changed():
    for position in range(0, len(SIGNED), 29):
        changed = SIGNED[:position] + chr(ord(SIGNED[position]) ^ 1) + SIGNED[position + 1 :]
        with pytest.raises(SnapshotError):
            restore(changed, PROMPT, signing_key=KEY)


@pytest.mark.parametrize(
    ("key", "says"),
    [("", "0 bytes"), ("hunter2", "7 bytes"), (b"x" * 31, "31 bytes"), (12345, "int"), (["hunter2"], "list")],
)
def test_a_key_that_is_none_is_refused_and_not_shown(key, says):
    for use in (lambda: snapshot(waiting(), signing_key=key), lambda: restore(SIGNED, PROMPT, signing_key=key)):
        with pytest.raises(UsageError, match=f"signing_key: .*{says}") as caught:
            use()
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("document", [None, [SIGNED]])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_document_that_is_no_text_is_refused(document, key):
    with pytest.raises(UsageError, match="document"):
        restore(document, PROMPT, signing_key=key)


def test_the_key_is_nowhere():
    agent = Agent(Script("hi"))
    document = snapshot(agent.prepare("Hello."), signing_key=KEY)
    call = agent.restore(document, signing_key=KEY)
    with pytest.raises(SnapshotError) as caught:
        agent.restore(document, signing_key=OTHER)
    for text in (document, repr(call.record), repr(agent), snapshot(call), *traceback.format_exception(caught.value)):
        assert KEY not in text
        assert OTHER not in text
    assert agent.run(call).output == "hi"
