"""Files of models: their magic and their checksum."""

from __future__ import annotations

import hashlib
from pathlib import Path


def is_gguf(path: Path) -> bool:
    """Return whether a file begins as a GGUF file does.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits; 1 GB takes 1 to 3 s."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
