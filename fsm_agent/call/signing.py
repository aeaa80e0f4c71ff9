"""Sign documents with a key, and verify their signatures."""

from __future__ import annotations

import hmac

from fsm_agent.errors import JournalError, SnapshotError, UsageError
from fsm_agent.validation import shown

MIN_KEY_BYTES = 32  # the length of the hash: shorter keys weaken it (RFC 2104, section 3)
_HEAD, _TAIL = b'{"signature":"', b'",'  # around the signature, before the signed fields
_START, _END = len(_HEAD), len(_HEAD) + 64


class KeyMissing(JournalError):
    """The journal of a run is signed, and there is no key to read it.

    Args:
        run: The name of the run.
    """

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        return (
            f"the run {self.run!r} is signed: expected the signing_key that it was written with, got none; pass"
            " store=Runs('runs.db', signing_key=…), or set FSM_AGENT_SIGNING_KEY for commands"
        )


def signed(document: str, signing_key: str | bytes) -> str:
    """Return a JSON object with a ``signature`` before its fields: HMAC-SHA256 of the object without it.

    Raises:
        UsageError: The key is too short.
    """
    return f'{{"signature":"{_signature(document.encode(), signing_key)}",{document[1:]}'


def has_signature(document: bytes) -> bool:
    """Return whether a document is signed, with any key."""
    return document.startswith(_HEAD)


def verified(document: str | bytes, signing_key: str | bytes | None) -> bytes:
    """Return the object that was passed to `signed`; without a key, return an unsigned document as it is.

    Raises:
        SnapshotError: The document is not signed with this key, or it is signed and no key was passed.
        UsageError: The key is too short, or the document is neither text nor bytes.
    """
    if not isinstance(document, str | bytes):
        raise UsageError(f"the document: expected what snapshot() returned, a text or bytes, got {shown(document)}")
    body = (document.encode("utf-8", "surrogatepass") if isinstance(document, str) else document).strip()
    if signing_key is None:
        if has_signature(body):
            raise SnapshotError("the snapshot is signed; pass the signing_key that it was written with")
        return body
    if not body.startswith(_HEAD) or body[_END : _END + len(_TAIL)] != _TAIL:
        raise SnapshotError(
            "the snapshot: expected a signed one, since signing_key is given, got one without a signature; pass it"
            " as it"
            " was written, since reformatting loses the signature"
        )
    signature, body = body[_START:_END], b"{" + body[_END + len(_TAIL) :]
    if not hmac.compare_digest(_signature(body, signing_key).encode(), signature):
        raise SnapshotError("the snapshot was signed with another signing_key, or changed afterwards")
    return body


def key_bytes(signing_key: str | bytes) -> bytes:
    """Return a key as bytes.

    Raises:
        UsageError: It is too short, or neither text nor bytes.
    """
    key = signing_key.encode() if isinstance(signing_key, str) else signing_key
    right = f"signing_key: expected {MIN_KEY_BYTES} bytes or more, such as secrets.token_hex(), got"
    if not isinstance(key, bytes):
        raise UsageError(f"{right} a value of type {type(key).__name__}")
    if len(key) < MIN_KEY_BYTES:
        raise UsageError(f"{right} {len(key)} bytes")
    return key


def _signature(body: bytes, signing_key: str | bytes) -> str:
    return hmac.new(key_bytes(signing_key), body, "sha256").hexdigest()
