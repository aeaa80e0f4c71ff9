"""Verifies the journals in a store, reads their snapshots, and makes titles for runs."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from fsm_agent._internal.structs import decoder_of, from_json, to_json
from fsm_agent._internal.text import cut, plain
from fsm_agent.call.journal import Chain, KeyMissing, has_signature, is_signed, key_bytes, verified
from fsm_agent.errors import JournalError
from fsm_agent.store.recorder import Saved
from fsm_agent.store.store import Loaded, Store

MAX_SNAPSHOT_BYTES = 1 << 28  # of a decompressed snapshot
TITLE_CHARS = 160


class Journals:
    """The journals in a store, and the key that signs them, if any."""

    def __init__(self, store: Store, signing_key: str | bytes | None = None) -> None:
        self.store = store
        self.key = None if signing_key is None else key_bytes(signing_key)

    def check_key(self, loaded: Loaded) -> None:
        """Refuse signed entries if there is no key to verify them."""
        if self._lacks_key(loaded):
            raise KeyMissing(loaded.run.id)

    def _lacks_key(self, loaded: Loaded) -> bool:
        return self.key is None and bool(loaded.lines) and is_signed(loaded.lines[0])

    def verdict(self, loaded: Loaded) -> tuple[str, bool]:
        """Verify a journal's digests, and return `(result, is_sound)`, where ``result`` is a description."""
        if self._lacks_key(loaded):
            return "signed, and no signing key was given, so nothing was verified", True
        chain = Chain(loaded.header, self.key)
        try:
            for line in loaded.lines:
                chain.verified(line)
        except JournalError as error:
            return str(error), False
        return f"verified by its {'digests' if self.key is None else 'signatures'}", True

    def read_snapshot(self, loaded: Loaded) -> Saved | None:
        """Return the snapshot of a run, or None if it has none.

        Raises:
            JournalError: If the snapshot is damaged, forged, or from another run.
            KeyMissing: If the snapshot is signed and `Runs` has no key.
        """
        if loaded.snapshot is None:
            return None
        saved = self._unpack_snapshot(loaded.snapshot[1], loaded.run.id)
        if saved.start != Chain(loaded.header, self.key).digest:
            raise JournalError("the snapshot belongs to another run, or the header was changed")
        return saved

    def _unpack_snapshot(self, packed: bytes, run: str) -> Saved:
        try:
            # A forged snapshot can decompress to any size, so the output is limited.
            unpacker = zlib.decompressobj()
            document = unpacker.decompress(packed, MAX_SNAPSHOT_BYTES)
            if unpacker.unconsumed_tail:
                raise ValueError(f"expected at most {MAX_SNAPSHOT_BYTES} bytes, got more")
            if not unpacker.eof:
                raise ValueError("it is truncated")
            if self.key is None and has_signature(document):
                raise KeyMissing(run)
            saved: Saved = decoder_of(Saved).decode(verified(document, self.key))
            return saved
        except KeyMissing:
            raise
        except (zlib.error, ValueError) as error:
            raise JournalError(f"the snapshot of the run is damaged or forged: {error}") from error

    def chain_before(self, loaded: Loaded, saved: Saved | None) -> Chain:
        """Return the chain of digests up to the loaded entries, which follow the snapshot if there is one."""
        n = 0 if loaded.snapshot is None else loaded.snapshot[0]
        return Chain(loaded.header, self.key, n, None if saved is None else saved.digest)

    def chain_after(self, loaded: Loaded, saved: Saved | None) -> Chain:
        """Return the chain of digests up to the last entry, for a run that was loaded from its snapshot."""
        chain = self.chain_before(loaded, saved)
        for line in loaded.lines:
            chain.verified(line)
        return chain


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    role: str = ""
    parts: list[_Part] = []


class _Seed(msgspec.Struct):
    dialog: list[_Message] = []
    data: msgspec.Raw = msgspec.Raw()


class _Began(msgspec.Struct):
    """The parts of a header from which a run's title is made."""

    seed: _Seed


def title_of(header: str) -> str:
    """Return a title for a run, taken from the last message and the data in its task, or "" if they cannot be read."""
    try:
        seed = decoder_of(_Began).decode(header).seed
        texts = ["".join([part.text for part in one.parts]) for one in seed.dialog[-1:] if one.role != "system"]
        data = from_json(bytes(seed.data), Any) if bytes(seed.data) else {}
    except (ValueError, RecursionError):
        return ""
    if isinstance(data, dict):
        texts += [f"{name}: {_words(value)}" for name, value in data.items() if value]
    elif data:
        texts.append(_words(data))
    text = ", ".join(texts)[: 2 * TITLE_CHARS]
    return cut(" ".join(plain(text).split()), TITLE_CHARS)


def _words(value: Any) -> str:
    return (value if isinstance(value, str) else to_json(value))[: TITLE_CHARS + 1]
