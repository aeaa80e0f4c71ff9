"""Lines of a journal that are written, and their digests computed, at the first read.

A store in memory hardly ever reads its lines, and the digests would be a fifth to a third of its time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

import msgspec

from fsm_agent._internal.lazy_import import deferred

if TYPE_CHECKING:
    import hashlib
    import hmac
else:
    hashlib, hmac = deferred("hashlib"), deferred("hmac")

DIGEST_BYTES = 16  # against damage: 128 bits
_encoder = msgspec.json.Encoder()


class PendingLines(Sequence[str]):
    """The next lines of a journal.

    Args:
        n: The number of the line before the first.
        before: The digest of that line, or the pending lines that end with it.
        parts: The key, the outcome, the steps of each entry, and who posted it; the outcome and steps are JSON.
        fence: The fence of the holder.
        signing_key: The key of the digests, which are HMACs then; None: they are plain digests.
    """

    __slots__ = ("_before", "_fence", "_n", "_parts", "_signing_key", "_written")

    def __init__(
        self,
        n: int,
        before: str | PendingLines,
        parts: Sequence[tuple[str, str, str, str]],
        fence: int,
        signing_key: bytes | None,
    ) -> None:
        self._n = n
        self._before = before
        self._parts = parts
        self._fence = fence
        self._signing_key = signing_key
        self._written: tuple[list[str], str] | None = None  # the lines, and the digest of the last

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._read()[0][index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read()[0])

    @property
    def digest(self) -> str:
        """The digest of the last line, or of the line before if there are no lines."""
        return self._read()[1]

    @property
    def is_plain(self) -> bool:
        """True if each line can be encoded and holds no line break; computed without writing the lines."""
        text = "".join(["".join(part) for part in self._parts])
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                return False
        return "\n" not in text

    def _read(self) -> tuple[list[str], str]:
        """Write the lines, and pending lines before them; return the lines and the digest of the last; thread-safe."""
        # A stack instead of recursion: a chain of pending lines may be longer than Python's stack is deep.  No lock is
        # needed: the lines are made of immutable strings, so two threads write the same.
        pending = [self]
        while True:
            lines = pending[-1]
            before = lines._before
            if not isinstance(before, str):
                if before._written is None:
                    pending.append(before)
                    continue
                before = before._written[1]
            lines._written = written = lines._written or lines._write(before)
            lines._before = before
            pending.pop()
            if not pending:
                return written

    def _write(self, digest: str) -> tuple[list[str], str]:
        lines = list[str]()
        for n, (key, outcome, steps, by) in enumerate(self._parts, self._n + 1):
            name = _encoder.encode(key).decode()
            posted = f',"by":{_encoder.encode(by).decode()}' if by else ""
            text = f'{{"n":{n},"key":{name},"outcome":{outcome},"steps":{steps}{posted},"fence":{self._fence}'
            digest = digest_of(f"{digest}{text}".encode(), self._signing_key)
            lines.append(f'{text},"digest":"{digest}"}}')
        return lines, digest


def digest_of(data: bytes, signing_key: bytes | None) -> str:
    """Return the digest of a line; ``data`` begins with the digest of the line before."""
    if signing_key is not None:
        return hmac.digest(signing_key, data, "sha256").hex()
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()
