"""Texts as Postgres takes them, which has no zero characters."""

from __future__ import annotations


def encode(text: str) -> str:
    """Return a text without zero characters."""
    return text.replace("\x1a", "\x1a1").replace("\x00", "\x1a0") if "\x00" in text or "\x1a" in text else text


def decode(text: str) -> str:
    """Return the text that was encoded."""
    return text.replace("\x1a0", "\x00").replace("\x1a1", "\x1a") if "\x1a" in text else text
