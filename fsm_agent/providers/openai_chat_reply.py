"""Replies from Chat Completions, complete or streamed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pydantic_core

from fsm_agent.messages.message import FunctionCall, Opaque, Part, Reasoning, Text
from fsm_agent.messages.reply import UNUSED, Finish, Reply, TokenLogprob, Usage
from fsm_agent.providers.codec import Decoder, Deltas
from fsm_agent.providers.content import (
    FirstChoice,
    as_text,
    citations,
    cited,
    first_count,
    object_at,
    streamed_arguments,
    text_or_none,
    token_logprobs,
)
from fsm_agent.providers.failures import picture_alone
from fsm_agent.providers.sse import ArrivingText, joined

WIRE = "openai-chat"
REASONING_DETAILS = "reasoning_details"
BESIDE_CALLS = ("extra_content",)  # extra keys of a call that are sent back: Gemini's signature
UNREPORTED = "the usage is unknown: the stream of the reply ended before it was reported"
FINISHES: dict[str, Finish] = {  # gateways also pass on the words of Gemini and Bedrock
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete", "completed"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length", "max_length", "max_output_tokens"), "length"),
    **dict.fromkeys(("token_limit", "model_context_window_exceeded", "context_length_exceeded"), "length"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use", "tool_call"), "tool_calls"),
    **dict.fromkeys(("content_filter", "content_filtered", "safety", "sensitive", "guardrail"), "content_filter"),
    **dict.fromkeys(("guardrail_intervened", "recitation", "blocklist", "prohibited_content"), "content_filter"),
    **dict.fromkeys(("error", "abort", "aborted", "cancelled", "network_error", "timeout", "time_limit"), "error"),
    **dict.fromkeys(("insufficient_system_resource", "malformed_function_call", "function_call_filter"), "error"),
    "refusal": "refusal",
    "spii": "content_filter",
}
_RARE = frozenset({"error", "search_results", "citations", "x_groq"})  # rare keys of a chunk
Kind = type[Text] | type[Reasoning]
_OPEN, _CLOSE = "<think>", "</think>"
_CLOSED = re.compile(r"^[ \t]*</think>[ \t]*(?:\n\s*|\Z)", re.MULTILINE)
_MOST_BLANKS = 64  # before the tag; more blanks than this belong to the answer and are not held back
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text")  # keys of the reasoning
_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens", "cache_read_input_tokens")


class ThinkTags:
    """Splits an arriving text into the answer and the reasoning, which is in think tags at the beginning.

    Ollama, vLLM and other servers pass on these tags from DeepSeek-R1, QwQ and similar models unless a reasoning parser
    is switched on (https://docs.vllm.ai, "Reasoning Outputs", November 2026).
    """

    def __init__(self) -> None:
        self._held = ""  # may be the beginning of a tag, or blanks before one
        self._place: Literal["before", "inside", "behind", "answer"] = "before"

    def feed(self, text: str) -> list[tuple[Kind, str]]:
        """Return the pieces that the next text completes."""
        if self._place == "answer":
            return [(Text, text)] if text else []
        pieces: list[tuple[Kind, str]] = []
        text, self._held = self._held + text, ""
        if self._place == "before":
            begun = text.lstrip()
            if begun.startswith(_OPEN):
                self._place, text = "inside", begun.removeprefix(_OPEN)
            elif _OPEN.startswith(begun) and len(text) <= _MOST_BLANKS:
                self._held, text = text, ""
            else:
                self._place = "answer"
        if self._place == "inside":
            thought, close, rest = text.partition(_CLOSE)
            if close:
                self._place, text = "behind", rest
            else:
                sure = len(text) - next(n for n in reversed(range(len(_CLOSE))) if text.endswith(_CLOSE[:n]))
                thought, self._held, text = text[:sure], text[sure:], ""
            pieces += [(Reasoning, thought)] if thought else []
        if self._place == "behind" and (text := text.lstrip()):  # blanks after the tags are not part of the answer
            self._place = "answer"
        return [*pieces, (Text, text)] if text else pieces

    def end(self) -> list[tuple[Kind, str]]:
        """Return what was held back."""
        held, self._held = self._held, ""
        return [(Reasoning if self._place == "inside" else Text, held)] if held else []


def _split_thought(text: str) -> list[Part]:
    """Return text as parts: the reasoning, up to a closing think tag on a line of its own, and the answer.

    Some chat templates put the opening tag into the prompt, so that the model writes only the closing one.  A stream
    has then announced the reasoning as text.
    """
    closed = _CLOSED.search(text) if _CLOSE in text else None
    if closed is None or _OPEN in text[: closed.start()]:
        return [Text(text)]
    answer = text[closed.end() :]
    return [Reasoning(text=text[: closed.start()]), *([Text(answer)] if answer else [])]


class _Call:
    __slots__ = (
        "arguments",
        "beside",
        "id",
        "index",
        "is_completed",
        "is_empty",
        "is_growing",
        "is_whole",
        "latest",
        "name",
        "told",
    )

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = ArrivingText()
        self.latest = ""  # the latest piece of the arguments
        self.told = 0  # how many characters of the arguments were reported, if they grow
        self.index: int | None = None  # among the calls of the reply, once it has been announced
        self.is_completed = False
        self.is_growing = True  # each piece of the arguments began with the piece before it
        self.is_whole = False  # its first piece was a whole JSON object
        self.is_empty = False  # an empty object has arrived: all the arguments, or a placeholder for later ones
        self.beside: dict[str, Any] = {}

    def add(self, text: str) -> str:
        """Add arguments or a piece of them, and return the part that is now certain.

        Some gateways send an empty object before the real arguments, and others send the pieces and then all the
        arguments again.
        """
        if text == "{}" and not self.arguments:
            self.is_empty = True
            return ""
        if text.startswith("{") and len(text) == self.arguments.length and text == str(self.arguments):
            return ""
        is_first, was_growing = not self.latest, self.is_growing
        self.is_growing = was_growing and text.startswith(self.latest)
        self.latest = text
        self.is_completed = False
        added = self.arguments.add(text)
        if is_first:
            self.told = self.arguments.length
        elif self.is_growing:
            return ""
        elif was_growing:
            return str(self.arguments)[self.told :]
        return added

    @property
    def has_whole_arguments(self) -> bool:
        return self.is_empty or _is_object(str(self.arguments))

    def name_goes_on(self, id: str | None = None, text: str = "") -> bool:
        """Return whether another name is more of this call's name, given what arrives with it: an id and arguments."""
        if not self.id or self.has_whole_arguments:
            return False
        return id == self.id or (id is None and not text and not self.arguments)

    def add_name(self, name: str) -> None:
        """Add a name, a piece of it, or all of it again."""
        self.name = name if name.startswith(self.name) else self.name + name

    def whole_arguments(self) -> str:
        """Return the joined arguments, or the latest piece of them if each piece repeats those before it.

        https://github.com/NousResearch/hermes-agent/issues/35592 (DeepSeek and Qianfan behind gateways, 2026-05)
        """
        joined = str(self.arguments)
        if self.is_growing and not _is_object(joined) and _is_object(self.latest):
            return self.latest
        return streamed_arguments(joined)

    def rest(self) -> str:
        """End the arguments, and return the part of them that only now is certain."""
        rest = self.arguments.add("{}") if self.is_empty and not self.arguments else self.arguments.end()
        if self.is_growing:
            rest = self.whole_arguments()[self.told :]
            self.told = self.arguments.length
        return rest


class ArrivingCalls:
    """The function calls in a reply, in the order in which their names arrived."""

    def __init__(self, deltas: Deltas) -> None:
        self._deltas = deltas
        self._calls: list[_Call] = []
        self._by_key: dict[Any, _Call] = {}
        self._last: _Call | None = None
        self._held: _Call | None = None  # not yet announced, because its name may go on

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def has_nameless(self) -> bool:
        """True if arguments have arrived for a call without a name."""
        return any(call.index is None and (call.arguments or call.is_empty) for call in self._by_key.values())

    def parts(self) -> Iterator[Part]:
        for call in self._calls:
            if call.beside:
                yield Opaque(wire=WIRE, data=call.beside)
            yield FunctionCall(name=call.name, arguments_json=call.whole_arguments(), provider_id=call.id or None)

    def end(self) -> None:
        self._announce_held()
        for call in self._calls:
            self._complete(call)

    def take(self, entry: Mapping[str, Any], *, is_whole: bool) -> None:
        function = entry.get("function")
        if not isinstance(function, dict) or not (function.get("name") or function.get("arguments")):
            custom = entry.get("custom")
            if isinstance(custom, dict) and custom.get("name"):
                function = {"name": custom["name"], "arguments": custom.get("input")}
        if not isinstance(function, dict):
            function = {}
        id, name = text_or_none(entry.get("id")), text_or_none(function.get("name"))
        text = as_text(function.get("arguments"))
        call = self._call(None if is_whole else entry.get("index"), id, name, text, is_whole)
        if self._held is not call:
            self._announce_held()
        call.id = call.id or id or ""
        call.add_name(name or "")
        call.beside |= {key: entry[key] for key in BESIDE_CALLS if entry.get(key)}
        if text:
            call.is_whole = call.is_whole or (not call.arguments and _is_object(text))
            text = call.add(text)
        if call.index is not None:
            self._deltas.add_arguments(call.index, text)
        elif call.name:
            self._held = call
            if is_whole or not call.name_goes_on():
                self._announce_held()

    def _announce_held(self) -> None:
        """Announce the call whose name might have gone on, and complete the previous call if it is a whole object."""
        if (call := self._held) is None:
            return
        self._held = None
        if self._calls and (self._calls[-1].is_empty or _is_object(str(self._calls[-1].arguments))):
            self._complete(self._calls[-1])
        call.index = self._deltas.begin_call(call.name, call.id or None)
        self._calls.append(call)
        self._deltas.add_arguments(call.index, str(call.arguments)[: call.told if call.is_growing else None])

    def _complete(self, call: _Call) -> None:
        if call.index is not None and not call.is_completed:
            call.is_completed = True
            self._deltas.add_arguments(call.index, call.rest())
            self._deltas.complete_call(call.index)

    def _call(self, index: Any, id: str | None, name: str | None, text: str, is_new: bool) -> _Call:
        """Return the call that a piece belongs to, found by index or id, or else the last call.

        Some services give all parallel calls the same index, so a new name or id, or a second complete set of
        arguments, also begins a call.  Others repeat the name and id with every piece, send the name in pieces, or send
        the arguments under another index than the name.
        """
        key = index if isinstance(index, int | str) else id
        known = self._by_key.get((key, id)) or self._by_key.get(key)
        goes_on = key is None or (id is None and self._last is not None and not self._last.has_whole_arguments)
        candidate = known or (self._last if goes_on and not name else None)
        if candidate and not is_new:
            is_other = name and (
                (id and candidate.id and id != candidate.id)
                or (candidate.name and name != candidate.name and not candidate.name_goes_on(id, text))
                or (candidate.is_whole and _is_object(text))
            )
            if not is_other:
                return candidate
        call = self._last = _Call()
        self._by_key[key if not is_new and key is not None else object()] = call
        if id is not None and not is_new:
            self._by_key[key, id] = call
        return call


def _is_object(text: str) -> bool:
    if not text.startswith("{") or not text.endswith("}"):
        return False
    try:
        pydantic_core.from_json(text)
    except ValueError:
        return False
    return True


class ChatDecoder(Decoder):
    """Decodes a complete response, or the chunks in a stream.

    Only one choice is read; see `FirstChoice`.  A stream is complete at its ``[DONE]``, because some services send no
    finish reason.  It is also complete at a finish reason, because at most the usage is then missing, and a retry would
    cost as much again.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self.finish_raw: str | None = None
        self._is_cut = False
        self._choice = FirstChoice()
        self._texts: list[tuple[Kind, ArrivingText]] = []
        self._content = ArrivingText()  # everything in the field of the answer, which may hold tags
        self._tags = ThinkTags()
        self._has_pictures = False
        self._details: list[dict[str, Any]] = []
        self._annotations: list[Any] = []
        self._sources: Any = None
        self._refusal = ArrivingText()
        self._logprobs: list[TokenLogprob] = []
        self._calls = ArrivingCalls(self.deltas)

    def take(self, document: dict[str, Any]) -> None:
        """Read a chunk or a complete response.

        Raises:
            ProviderError: If the document reports an error.
        """
        choices = document.get("choices")
        if choices is None or not _RARE.isdisjoint(document):
            self._take_rare(document, choices)
        if self.model is None:
            self.model = text_or_none(document.get("model"))
        if self.response_id is None:
            self.response_id = text_or_none(document.get("id"))
        self.take_usage(document.get("usage"), _usage)
        if type(choices) is list:
            for choice in choices:
                if type(choice) is dict:
                    self._take_choice(choice)

    def take_held(self) -> None:
        for choice in self._choice.take_held():
            self._take_choice(choice)

    def _take_rare(self, document: Mapping[str, Any], choices: Any) -> None:
        if document.get("error") or (choices is None and _is_flat_error(document)):
            raise self.reported_error(document)
        self._sources = document.get("search_results") or document.get("citations") or self._sources  # Perplexity, xAI
        if isinstance(groq := document.get("x_groq"), dict):
            self.take_usage(groq.get("usage"), _usage)

    def close(self, *, is_cut: bool) -> None:
        self._is_cut = is_cut
        for kind, held in (*self._tags.feed(self._content.end()), *self._tags.end()):
            self._add_text(kind, held)
        self._end_text()
        untold = [text for entry in self._details for text in entry.values() if isinstance(text, ArrivingText)]
        for text in (self._refusal, *untold):
            text.end()
        self._calls.end()

    def reply(self) -> Reply:
        """Return the reply.

        Raises:
            BadReply: If no reply has arrived, or a function call has no name.
        """
        if not self._choice.has_begun:
            raise self.no_answer()
        if self._calls.has_nameless:
            raise self.bad_reply("a function call in the reply has no name")
        parts: list[Part] = []
        if self._details:
            details = [
                {key: str(value) if isinstance(value, ArrivingText) else value for key, value in entry.items()}
                for entry in self._details
            ]
            parts.append(Opaque(wire=WIRE, data={REASONING_DETAILS: details}))
        for kind, arrived in self._texts:
            text = str(arrived)
            parts += _split_thought(text) if kind is Text else [Reasoning(text=text)]
        if self._annotations or self._sources:
            parts = cited(parts, citations(self._annotations) or citations(self._sources))
        parts += self._calls.parts()
        refusal = str(self._refusal) or None
        if self._has_pictures and not self._calls and not any(isinstance(part, Text) for part in parts):
            raise picture_alone(self.headers)
        if self.finish_raw is None and not parts and refusal is None:
            raise self.bad_reply("the reply has neither an answer nor a finish reason")
        word, _, _ = (self.finish_raw or "").partition(":")  # Gemini adds a detail: "content_filter: SAFETY"
        finish = FINISHES.get(word.strip().lower())
        if finish == "error" and not self._texts and not self._calls:
            raise self.bad_reply(f"the model ended with the finish reason {self.finish_raw!r}, without an answer")
        return self.reply_of(
            parts,
            finish,
            finish_raw=self.finish_raw,
            refusal=refusal,
            logprobs=tuple(self._logprobs),
            adapted=(UNREPORTED,) if self._is_cut and self.usage == UNUSED else (),
        )

    def _take_choice(self, choice: Mapping[str, Any]) -> None:
        if not self._choice.has(choice, choice.get("index")):  # some services number only some of the chunks
            return
        if choice.get("error"):
            raise self.reported_error(choice)
        if (finish := choice.get("finish_reason")) and type(finish) is str:
            self.finish_raw, self.is_ended = finish, True  # the usage, and ``[DONE]``, may follow
        delta = choice.get("message" if self.is_whole else "delta")
        if type(delta) is dict and len(delta) == 1 and type(content := delta.get("content")) is str and content:
            self._add_words(content)  # the common case
        else:
            self._take_rich_delta(delta, choice)
        if (logprobs := choice.get("logprobs")) and isinstance(logprobs, dict):
            self._logprobs += token_logprobs(logprobs.get("content"))

    def _take_rich_delta(self, delta: Any, choice: Mapping[str, Any]) -> None:
        if type(delta) is not dict and not self.is_whole and not self._texts and not self._calls:
            delta = choice.get("message")  # a whole completion as the only chunk
        if type(delta) is not dict:
            return
        summary = self._take_details(delta.get(REASONING_DETAILS))
        thought = next(filter(None, map(delta.get, _THOUGHTS)), summary)  # some services send several
        if thought and isinstance(thought, str):
            self._add_text(Reasoning, thought)
        content = delta.get("content")
        if content is not None and content != "":
            self._take_content(content)
        elif isinstance(audio := delta.get("audio"), dict) and (words := text_or_none(audio.get("transcript"))):
            self._add_words(words)
        self._take_calls(delta)
        self._has_pictures = self._has_pictures or bool(delta.get("images"))  # OpenRouter, for models that draw
        if (refusal := delta.get("refusal")) and isinstance(refusal, str):
            self._refusal.add(refusal)
        if isinstance(annotations := delta.get("annotations"), list):
            self._annotations += annotations

    def _take_calls(self, delta: Mapping[str, Any]) -> None:
        if calls := delta.get("tool_calls"):
            for call in calls if isinstance(calls, list) else [calls]:
                if isinstance(call, dict):
                    self._calls.take(call, is_whole=self.is_whole)
        elif isinstance(function := delta.get("function_call"), dict):
            entry = {"index": "function_call", "function": function}
            self._calls.take(entry, is_whole=self.is_whole)

    def _add_text(self, kind: Kind, piece: str) -> None:
        if not self._texts or self._texts[-1][0] is not kind:
            self._end_text()
            self._texts.append((kind, ArrivingText()))
        self.deltas.say(kind, self._texts[-1][1].add(piece))

    def _end_text(self) -> None:
        if self._texts:
            kind, text = self._texts[-1]
            self.deltas.say(kind, text.end())

    def _add_words(self, piece: str) -> None:
        for kind, text in self._tags.feed(self._content.add(piece)):
            self._add_text(kind, text)

    def _take_content(self, content: Any) -> None:
        """Read content: text, parts of several types (Mistral), or a parsed JSON answer (Cloudflare)."""
        if isinstance(content, str):
            self._add_words(content)
            return
        if not isinstance(content, list):
            self._add_words(pydantic_core.to_json(content).decode())
            return
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind in ("thinking", "reasoning"):
                thought = part.get("thinking") or part.get("reasoning") or part.get("summary")
                if text := _extract_text(thought or part.get("text")):
                    self._add_text(Reasoning, text)
            elif kind == "refusal":
                self._refusal.add(_extract_text(part.get("refusal")))
            elif (isinstance(part, str) or kind in (None, "text", "output_text")) and (text := _extract_text(part)):
                self._add_words(text)

    def _take_details(self, details: Any) -> str:
        """Collect the entries to send back, joining their pieces, and return the text of this delta."""
        pieces = []
        for detail in details if isinstance(details, list) else ():
            if not isinstance(detail, dict):
                continue
            pieces.append(text_or_none(detail.get("text")) or text_or_none(detail.get("summary")) or "")
            if self.is_whole or not self._details or _is_other(detail, self._details[-1]):
                self._details.append({})
            entry = self._details[-1]
            for key, value in detail.items():
                if key in ("text", "summary", "data") and isinstance(value, str):
                    text = entry.get(key)
                    if not isinstance(text, ArrivingText):
                        text = entry[key] = ArrivingText()
                    text.add(value)
                elif value or key not in entry:
                    entry[key] = value
        return joined(pieces)


def _is_other(detail: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    """Return whether a detail begins a new entry, given that not every piece of an entry repeats the id."""
    ids = detail.get("id"), last.get("id")
    return any(detail.get(key) != last.get(key) for key in ("type", "index")) or (all(ids) and ids[0] != ids[1])


def _is_flat_error(document: Mapping[str, Any]) -> bool:
    return document.get("object") == "error" or "message" in document or "detail" in document


def _extract_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return joined([_extract_text(item) for item in value])
    return _extract_text(value.get("text")) if isinstance(value, dict) else ""


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Return the counts, which services spell in different ways."""
    inputs, outputs = object_at(usage, "prompt_tokens_details"), object_at(usage, "completion_tokens_details")
    input_tokens = first_count(usage.get("prompt_tokens"), usage.get("input_tokens"))
    output_tokens = first_count(usage.get("completion_tokens"), usage.get("output_tokens"))
    cached_tokens = first_count(inputs.get("cached_tokens"), *map(usage.get, _CACHED))
    written_tokens = first_count(inputs.get("cache_write_tokens"), usage.get("cache_creation_input_tokens"))
    reasoning_tokens = first_count(outputs.get("reasoning_tokens"), usage.get("reasoning_tokens"))
    if input_tokens is not None and output_tokens is not None:
        # xAI, and gateways to Gemini, count the reasoning in the total only, as others do with their cache:
        # https://github.com/mozilla-ai/any-llm/issues/1290 (2026-08)
        rest = (first_count(usage.get("total_tokens")) or 0) - input_tokens - output_tokens
        read, written = cached_tokens or 0, written_tokens or 0
        if rest > 0 and (rest == reasoning_tokens or rest not in (read, written, read + written)):
            output_tokens += rest
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        cache_write_tokens=written_tokens,
        reasoning_tokens=reasoning_tokens,
    )
