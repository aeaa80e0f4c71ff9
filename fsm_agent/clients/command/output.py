"""The output of a command as text: all of it, or a field of each line of JSON."""

from __future__ import annotations

import codecs
import re
from typing import Any

from fsm_agent._internal.field_checks import is_finite
from fsm_agent._internal.values import Value
from fsm_agent.errors import BadReply, ConfigError
from fsm_agent.messages.reply import MOST_TOKENS, UNUSED
from fsm_agent.providers.streams import read_json
from fsm_agent.validation import check

_STEP = re.compile(r"([^.\[\]]+)(?:\[([^.\[\]=]+)=([^\[\]]*)\])?(?:\.|$)")
_MOST_USD = 1e6  # that an answer is believed to have cost
_USAGE = ("input_tokens", "output_tokens", "cached_tokens")


class JsonFields(Value, frozen=True, kw_only=True):
    """The paths of an answer in a JSON document, or in each of many lines of JSON.

    A path is the keys to a value, joined by dots; numbers are positions in lists.  ``item[type=message].text``
    is found only where the ``type`` of ``item`` is ``message``.  The texts of all lines together are the answer.

    Raises:
        ConfigError: A path cannot be read.

    Examples:
        >>> JsonFields(text="result", error="error.message").text
        'result'
    """

    text: str
    error: str | None = None  # the message of a failure; anything but null, false and "" is one
    status: str | None = None  # of the failure, as HTTP has it
    retry_after_s: str | None = None
    input_tokens: str | None = None
    output_tokens: str | None = None
    cached_tokens: str | None = None
    cost_usd: str | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            path = getattr(self, name)
            is_right = isinstance(path, str) and _steps(path) is not None
            check(
                name, path, is_right or (path is None and name != "text"), "a path such as 'message.text'", ConfigError
            )

    def found(self, name: str, document: Any) -> Any:
        """Return what is at the path of this name; None: nothing."""
        for key, other, value in _steps(getattr(self, name) or "") or [("", "", "")]:
            if isinstance(document, list) and key.isdecimal() and int(key) < len(document):
                document = document[int(key)]
            elif isinstance(document, dict) and key in document:
                document = document[key]
            else:
                return None
            if other and not (isinstance(document, dict) and str(document.get(other)) == value):
                return None
        return document


class TextOutput:
    """Output that is the answer as it stands; the line ends at its end are not part of it."""

    usage = UNUSED

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._held = ""

    def feed(self, data: bytes, *, is_last: bool = False) -> list[str]:
        """Return the pieces of the answer that end in ``data``.

        Raises:
            BadReply: It is not text.
        """
        try:
            text = self._held + self._decoder.decode(data, is_last)
        except UnicodeDecodeError:
            raise BadReply("the output of the command: expected text in UTF-8, got other bytes") from None
        shown = text.rstrip("\r\n")
        self._held = text[len(shown) :]
        return [shown] if shown else []

    def failure(self) -> tuple[str, int | None, float | None] | None:
        """Return None: only the exit status tells of one."""
        return None


class JsonOutput:
    """Output of JSON: a document a line, or one document over all lines.

    Args:
        fields: The paths of what is wanted.
        is_lines: Whether each line is a document.
    """

    def __init__(self, fields: JsonFields, *, is_lines: bool) -> None:
        self._fields = fields
        self._is_lines = is_lines
        self._rest: list[bytes] = []
        self._failure: tuple[str, int | None, float | None] | None = None
        self.usage = UNUSED

    def feed(self, data: bytes, *, is_last: bool = False) -> list[str]:
        """Return the pieces of the answer that end in ``data``.

        Raises:
            BadReply: It is not JSON.
        """
        self._rest.append(data)
        if not is_last and not (self._is_lines and b"\n" in data):
            return []
        whole = b"".join(self._rest)
        documents = whole.split(b"\n") if self._is_lines else [whole]
        self._rest = [] if is_last else [documents.pop()]
        return [text for document in documents if document.strip() for text in self._taken(document)]

    def failure(self) -> tuple[str, int | None, float | None] | None:
        """Return the message, status and delay of the failure that the output tells of; None: of none."""
        return self._failure

    def _taken(self, line: bytes) -> list[str]:
        try:
            document = read_json(line)
        except ValueError:
            raise BadReply("the output of the command: expected JSON, got other text") from None
        fields = self._fields
        numbers = {name: fields.found(name, document) for name in _USAGE}
        counts = {name: n for name, n in numbers.items() if type(n) is int and 0 <= n <= MOST_TOKENS}
        if counts:  # input and output may be told on different lines
            self.usage = self.usage.changed(**counts)
        cost = fields.found("cost_usd", document)
        if is_finite(cost) and 0 <= cost <= _MOST_USD:
            self.usage = self.usage.changed(cost_pico_usd=round(cost * 10**12))
        error, text = fields.found("error", document), fields.found("text", document)
        if error not in (None, False, ""):
            message = error if isinstance(error, str) else text if isinstance(text, str) else "the command failed"
            status, delay_s = fields.found("status", document), fields.found("retry_after_s", document)
            self._failure = (
                message,
                status if type(status) is int else None,
                float(delay_s) if is_finite(delay_s) else None,
            )
            return []
        return [text] if isinstance(text, str) and text else []


def _steps(path: str) -> list[tuple[str, str, str]] | None:
    """Return the keys of a path, each with a condition on what is there; None: it cannot be read."""
    steps, at = list[tuple[str, str, str]](), 0
    while match := _STEP.match(path, at):
        steps.append((match[1], match[2] or "", match[3] or ""))
        at = match.end()
        if at == len(path):
            return steps if not path.endswith(".") else None
    return None
