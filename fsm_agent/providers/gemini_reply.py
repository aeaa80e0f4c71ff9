"""Gemini's replies, complete or streamed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import pydantic_core

from fsm_agent.messages.message import FunctionCall, Opaque, Part, Reasoning, Text
from fsm_agent.messages.reply import Finish, Reply, TokenLogprob, Usage
from fsm_agent.providers.codec import Decoder
from fsm_agent.providers.content import FirstChoice, cited, first_count, grounding, likely_tokens, text_or_none
from fsm_agent.providers.failures import no_object, picture_alone
from fsm_agent.providers.sse import ArrivingText

# One step in a path (RFC 9535): `.name`, `[3]`, `['name']` or `["name"]`.
_STEP = re.compile(r"\.([^.*\[\]'\"]+)|\[(\d{1,7})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MAX_STEPS = 64


WIRE = "gemini"
# https://ai.google.dev/api/generate-content#FinishReason and Vertex AI's (2026-11)
FINISHES: dict[str, Finish] = {
    "STOP": "stop",
    **dict.fromkeys(("MAX_TOKENS", "CONTINUATION"), "length"),
    **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), "content_filter"),
    **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"), "content_filter"),
    **dict.fromkeys(("MODEL_ARMOR", "JAILBREAK", "ESCALATION", "PUP_LIMITED_DISABLED"), "content_filter"),
    **dict.fromkeys(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"), "error"),
    **dict.fromkeys(("MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", "OTHER"), "error"),
    **dict.fromkeys(("IMAGE_OTHER", "NO_IMAGE"), "error"),
}
_UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"
_NO_DATA = frozenset({"text", "thought", "thoughtSignature"})


class _ArrivingString(ArrivingText):
    __slots__ = ("will_continue",)

    def __init__(self) -> None:
        super().__init__()
        self.will_continue = False


class StreamedArguments:
    """A call's arguments, which arrive in pieces.

    Each piece is a Vertex AI `PartialArg`: a path, a value, and whether the same string continues.
    """

    def __init__(self) -> None:
        self.value: Any = {}

    def put(self, piece: Mapping[str, Any]) -> bool:
        """Put a piece at the position that its path names.  Return False if the path does not exist."""
        steps = _steps(piece.get("jsonPath"))
        container, last = self.value, steps[-1] if steps else None
        for step, next_step in pairwise(steps):
            if not _has_step(container, step):
                return False
            container = _descend(container, step, [] if isinstance(next_step, int) else {})
        if not _has_step(container, last):
            return False
        text = piece.get("stringValue")
        if not isinstance(text, str):
            kind = next((name for name in ("numberValue", "boolValue") if name in piece), "")
            _descend(container, last, None)
            container[last] = piece.get(kind)
            return True
        string = _descend(container, last, None)
        if not (isinstance(string, _ArrivingString) and string.will_continue):
            string = container[last] = _ArrivingString()
        string.add(text)
        string.will_continue = piece.get("willContinue") is True
        return True

    def json(self) -> str:
        return pydantic_core.to_json(_join_strings(self.value)).decode()


def _steps(path: Any) -> list[str | int]:
    """Return a path's steps, or [] if the text is not a path."""
    steps: list[str | int] = []
    if not isinstance(path, str) or not path.startswith("$"):
        return []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or len(steps) == _MAX_STEPS:
            return []
        name, index, *quoted = match.groups()
        text = next((text for text in quoted if text is not None), "")
        steps.append(int(index) if index else name or _ESCAPED.sub(r"\1", text))
        at = match.end()
    return steps


def _has_step(container: Any, step: Any) -> bool:
    if isinstance(step, int):
        return isinstance(container, list) and step <= len(container)
    return isinstance(step, str) and isinstance(container, dict)


def _descend(container: Any, step: Any, empty: Any) -> Any:
    """Return the value at the step.  If it is missing, set it to ``empty`` first."""
    if isinstance(container, dict):
        return container.setdefault(step, empty)
    if step == len(container):
        container.append(empty)
    return container[step]


def _join_strings(value: Any) -> Any:
    if isinstance(value, _ArrivingString):
        value.end()
        return str(value)
    if isinstance(value, list):
        return [_join_strings(item) for item in value]
    return {key: _join_strings(item) for key, item in value.items()} if isinstance(value, dict) else value


class _Words:
    __slots__ = ("kind", "signature", "text")

    def __init__(self, kind: type[Text] | type[Reasoning], signature: str | None) -> None:
        self.kind = kind
        self.text = ArrivingText()
        self.signature = signature

    def part(self) -> Part:
        text = str(self.text)
        return Text(text, self.signature) if self.kind is Text else Reasoning(text=text)


class _Call:
    """A function call that is still arriving.  `arguments` is set once it is complete."""

    __slots__ = ("args", "arguments", "id", "index", "name", "signature")

    def __init__(self, index: int, name: str, id: str | None, signature: str | None) -> None:
        self.index = index
        self.name = name
        self.id = id
        self.signature = signature
        self.args = StreamedArguments()
        self.arguments: str | None = None

    def part(self) -> Part:
        return FunctionCall(
            name=self.name, arguments_json=self.arguments or "", provider_id=self.id, signature=self.signature
        )


class GeminiDecoder(Decoder):
    """Decodes a complete response, or the chunks in a stream.

    Only one candidate is read; see `FirstChoice`.  Chunks may follow a finish reason, because some models and gateways
    send ``"finishReason": "STOP"`` and the usage with every chunk.  An error that follows is therefore raised, as it
    may be the only sign that the reply is incomplete.  Sources: https://github.com/BerriAI/litellm/issues/2195
    (2024-02), https://github.com/songquanpeng/one-api/pull/1477 (2024-05),
    https://github.com/router-for-me/CLIProxyAPI/issues/5651 (2026-09).
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self._finish_raw: str | None = None
        self._block_reason: str | None = None
        self._candidate = FirstChoice()
        self._parts: list[_Words | _Call | Opaque] = []
        self._open: _Call | None = None  # the call whose arguments are still arriving
        self._has_nameless_call = False
        self._logprobs: list[TokenLogprob] = []
        self._grounding: Any = None

    def take_other(self, document: Any) -> None:
        """Read a list of all chunks, which the service sends if the request lacks `alt=sse`.

        Raises:
            ProviderError: If the list reports an error, is not a list of chunks, or is cut off.
        """
        if not isinstance(document, list) or not all(isinstance(chunk, dict) for chunk in document):
            raise no_object(document, self.headers)
        for chunk in document:
            self.take(chunk)
        if not self.is_ended:
            raise self.bad_reply("the stream was cut off before the end of the reply")

    def take(self, document: dict[str, Any]) -> None:
        """Read a chunk or a complete response.

        Raises:
            ProviderError: If the document reports an error, or a piece of a call's arguments has no path.
        """
        candidates, feedback = document.get("candidates"), document.get("promptFeedback")
        if document.get("error") or (candidates is None and ("message" in document or "detail" in document)):
            raise self.reported_error(document)
        self.model = self.model or text_or_none(document.get("modelVersion"))
        self.response_id = self.response_id or text_or_none(document.get("responseId"))
        self.take_usage(document.get("usageMetadata"), _usage)
        if isinstance(feedback, dict):
            self._block_reason = text_or_none(feedback.get("blockReason")) or self._block_reason
            self.is_ended = self.is_ended or self._block_reason is not None
        for candidate in candidates if isinstance(candidates, list) else ():
            if isinstance(candidate, dict):
                self._take_candidate(candidate)

    def take_held(self) -> None:
        for candidate in self._candidate.take_held():
            self._take_candidate(candidate)

    def close(self, *, is_cut: bool) -> None:
        self._close_call(is_cut=True)
        self._end_words()

    def reply(self) -> Reply:
        if not self._candidate.has_begun and self._block_reason is None:
            raise self.no_answer()
        if self._has_nameless_call:
            raise self.bad_reply("a function call in the reply has no name")
        finish = FINISHES.get(self._finish_raw or "")
        if self._block_reason:
            finish = "content_filter"
        elif finish == "stop" and self.deltas.calls:
            finish = "tool_calls"
        parts = [part if isinstance(part, Opaque) else part.part() for part in self._parts]
        text = "".join([part.text for part in parts if isinstance(part, Text)])
        has_picture = any(isinstance(part, Opaque) and _is_picture(part.data) for part in parts)
        if has_picture and not text and not self.deltas.calls:
            raise picture_alone(self.headers)
        return self.reply_of(
            cited(parts, grounding(self._grounding, text)),
            finish,
            finish_raw=self._finish_raw or self._block_reason,
            logprobs=tuple(self._logprobs),
        )

    def _take_candidate(self, candidate: Mapping[str, Any]) -> None:
        if not self._candidate.has(candidate, candidate.get("index") or 0):
            return
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and part:
                self._take_part(part)
        finish = text_or_none(candidate.get("finishReason"))
        if finish and finish != _UNSPECIFIED:
            self._finish_raw, self.is_ended = finish, True
            self._close_call(is_cut=finish != "STOP")
        self._grounding = candidate.get("groundingMetadata") or self._grounding
        if isinstance(logprobs := candidate.get("logprobsResult"), dict):
            self._logprobs += _logprobs(logprobs)

    def _take_part(self, part: Mapping[str, Any]) -> None:
        signature = text_or_none(part.get("thoughtSignature"))
        if isinstance(call := part.get("functionCall"), dict):
            self._take_call(call, signature)
            return
        text = part.get("text")
        if not isinstance(text, str):
            if part.keys() - _NO_DATA:
                self._append(Opaque(wire=WIRE, data=part))
                return
            text = ""
        if not part.get("thought"):
            self._say(Text, text, signature)
            return
        self._say(Reasoning, text, None)
        if signature:  # unlike `Reasoning`, `Opaque` says whose signature it is
            self._append(Opaque(wire=WIRE, data=part))

    def _say(self, kind: type[Text] | type[Reasoning], text: str, signature: str | None) -> None:
        """Add text.  In a stream, it continues the last text unless either has a signature."""
        if not text and not signature:
            return
        last = self._parts[-1] if self._parts and not self.is_whole else None
        if not (isinstance(last, _Words) and last.kind is kind and not last.signature and not signature):
            last = _Words(kind, signature)
            self._append(last)
        self.deltas.say(kind, last.text.add(text))

    def _append(self, part: _Words | _Call | Opaque) -> None:
        self._end_words()
        self._parts.append(part)

    def _end_words(self) -> None:
        if self._parts and isinstance(last := self._parts[-1], _Words):
            self.deltas.say(last.kind, last.text.end())

    def _take_call(self, entry: Mapping[str, Any], signature: str | None) -> None:
        """Read a call or a piece of one.

        Only the first piece has a name, and only the last one lacks `willContinue`.
        """
        if name := text_or_none(entry.get("name")):
            self._close_call()
            self._end_words()
            id = text_or_none(entry.get("id"))
            self._open = _Call(self.deltas.begin_call(name, id), name, id, signature)
            self._parts.append(self._open)
        if (call := self._open) is None:
            self._has_nameless_call = self._has_nameless_call or bool(entry)
            return
        call.id = call.id or text_or_none(entry.get("id"))
        call.signature = call.signature or signature
        if entry.get("args") is not None:
            call.args.value = entry["args"]
        pieces = entry.get("partialArgs")
        for piece in pieces if isinstance(pieces, list) else ():
            if not isinstance(piece, dict) or not call.args.put(piece):
                raise self.bad_reply("a piece of a function call's arguments has no path", pydantic_core.to_json(piece))
        if entry.get("willContinue") is not True:
            self._close_call()

    def _close_call(self, *, is_cut: bool = False) -> None:
        """Complete a call's arguments.  If they were cut off, they become invalid JSON."""
        if (call := self._open) is None:
            return
        self._open = None
        arguments = call.args.json()
        call.arguments = arguments[:-1] if is_cut else arguments
        self.deltas.add_arguments(call.index, call.arguments)
        self.deltas.complete_call(call.index)


def _is_picture(part: Mapping[str, Any]) -> bool:
    file = part.get("inlineData") or part.get("fileData")
    return isinstance(file, dict) and str(file.get("mimeType")).startswith("image/")


def _logprobs(logprobs: Mapping[str, Any]) -> Iterable[TokenLogprob]:
    chosen, alternatives = logprobs.get("chosenCandidates"), logprobs.get("topCandidates")
    tops = alternatives if isinstance(alternatives, list) else []
    for index, candidate in enumerate(chosen if isinstance(chosen, list) else ()):
        top = tops[index].get("candidates") if index < len(tops) and isinstance(tops[index], dict) else None
        for likely in likely_tokens([candidate], "logProbability"):
            yield TokenLogprob(*likely, tuple(likely_tokens(top, "logProbability")))


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Return the counts.  Results from server tools count as input, and reasoning counts as output."""
    thoughts = first_count(usage.get("thoughtsTokenCount"))
    counts = Usage(
        input_tokens=first_count(usage.get("promptTokenCount")),
        output_tokens=first_count(usage.get("candidatesTokenCount")),
        cached_tokens=first_count(usage.get("cachedContentTokenCount")),
    )
    return counts + Usage(
        input_tokens=first_count(usage.get("toolUsePromptTokenCount")),
        output_tokens=thoughts,
        reasoning_tokens=thoughts,
    )
