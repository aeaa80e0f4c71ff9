"""Reasoning that a model writes into its text: ``<think>…</think>`` before the answer.

Ollama, vLLM and others pass on the text of DeepSeek-R1, QwQ and their kin as it is, unless a parser of reasoning is
switched on there (https://docs.vllm.ai, "Reasoning Outputs", November 2026).
"""

from __future__ import annotations

from fsm_agent.messages.message import Reasoning, Text

_OPEN, _CLOSE = "<think>", "</think>"
_MOST_BLANKS = 64  # before the tag; what begins with more is the answer, so that no text is held for ever
Piece = tuple[type[Text] | type[Reasoning], str]


class ThinkTags:
    """Splits a text that is still arriving: what stands in the tags at its very beginning is reasoning."""

    def __init__(self) -> None:
        self._held = ""  # may be the beginning of a tag, or blanks before one
        self._is_inside = False
        self._is_behind = False  # blanks behind the tags are no part of the answer
        self.is_decided = False  # all that follows is the answer

    def feed(self, text: str) -> list[Piece]:
        """Take the next piece of the text; return what is certain of it."""
        if self.is_decided:
            return [(Text, text)]
        if self._is_inside:
            return self._inside(text)
        if self._is_behind:
            if rest := text.lstrip():
                self.is_decided = True
                return [(Text, rest)]
            return []
        begun = (self._held + text).lstrip()
        if begun.startswith(_OPEN):
            self._held, self._is_inside = "", True
            return self._inside(begun.removeprefix(_OPEN))
        if _OPEN.startswith(begun) and len(self._held) <= _MOST_BLANKS:
            self._held += text
            return []
        self.is_decided = True
        return [*self._rest(), (Text, text)]

    def end(self) -> list[Piece]:
        """Take the end of the text; return what was held back."""
        return self._rest()

    def _inside(self, text: str) -> list[Piece]:
        text = self._held + text
        thought, close, rest = text.partition(_CLOSE)
        if close:
            self._held, self._is_inside, self._is_behind = "", False, True
            return [*([(Reasoning, thought)] if thought else []), *self.feed(rest)]
        held = next((n for n in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:n])), 0)
        self._held = text[len(text) - held :]
        sure = text[: len(text) - held]
        return [(Reasoning, sure)] if sure else []

    def _rest(self) -> list[Piece]:
        held, self._held = self._held, ""
        return [(Reasoning if self._is_inside else Text, held)] if held else []
