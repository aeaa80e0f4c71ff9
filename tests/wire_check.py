"""Do the codecs read recorded traffic as it was meant?

Run it over any folder of recorded cases (the format is described in the README of ``../shared/wire``)::

    python tests/wire_check.py DIR [--api openai_chat]

Each case is decoded whole, in pieces of 7 bytes and, if it is short, byte by byte, and compared with `expected`. Each
difference is a line.  A summary per provider follows.  The exit code is 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from conformance.streams import mismatch

from fsm_agent.errors import ProviderError
from fsm_agent.messages import Delta, Reply
from fsm_agent.providers import AnthropicCodec, Codec, GeminiCodec, OpenAIChatCodec, OpenAIResponsesCodec

CODECS: dict[str, Codec] = {
    "anthropic_messages": AnthropicCodec(),
    "gemini": GeminiCodec(),
    "openai_chat": OpenAIChatCodec(),
    "openai_responses": OpenAIResponsesCodec(),
}
PIECES = (1, 7)  # bytes that are fed at a time
MOST_BYTES = 8_000  # of a body that is fed by each

Case = dict[str, Any]
Intended = Callable[[str, Any, Any, Case], bool]  # of the field, what was expected, what came, in which case


def _is_nested(field: str, expected: Any, got: Any, case: Case) -> bool:
    if field != "error.message":
        return False
    says_more = got.startswith(f"{expected}: ")
    return says_more or (expected.startswith("{") and json.dumps(got)[1:-1] in expected)


def _is_thought(field: str, expected: Any, got: Any, case: Case) -> bool:
    said = (case["expected"].get("text") or "").lstrip()
    if not said.startswith("<think>"):
        return False
    thought, _, answer = said.removeprefix("<think>").partition("</think>")
    return (field == "text" and (got or "") == answer.lstrip()) or (field == "reasoning" and (got or "") == thought)


# Where we differ on purpose, and why.
INTENDED: dict[str, Intended] = {
    "an error inside the error (OpenRouter's metadata.raw, a proxy's JSON in the message) is unpacked": _is_nested,
    "what a model thinks in tags at the beginning of its text is reasoning": _is_thought,
    "cached tokens are read in the spellings of Mistral, Databricks and Together too": (
        lambda field, expected, got, case: field == "usage.cached_tokens" and expected is None
        and got in _counts(case, "num_cached_tokens", "cached_tokens", "cache_read_input_tokens")
    ),
    "cache writes are read in Anthropic's spelling too": (
        lambda field, expected, got, case: field == "usage.cache_write_tokens" and expected is None
        and got in _counts(case, "cache_creation_input_tokens")
    ),
    "xAI counts reasoning beside the output, `Usage` as a part of it": (
        lambda field, expected, got, case: field == "usage.output_tokens"
        and got == (expected or 0) + (case["expected"]["usage"]["reasoning_tokens"] or 0)
        and case["expected"]["usage"].get("total_tokens") == (case["expected"]["usage"]["input_tokens"] or 0) + got
    ),
    "Gemini counts what its own tools fed to the model beside the input, `Usage` as a part of it": (
        lambda field, expected, got, case: field == "usage.input_tokens"
        and got == (expected or 0) + ((case["expected"]["usage"] or {}).get("tool_use_prompt_tokens") or 0)
    ),
    "where Gemini blocked the prompt, the reason for it is the raw word": (
        lambda field, expected, got, case: field == "finish_reason" and expected is None
        and got == case["info"].get("prompt_block_reason")
    ),
    "a failure of the model or the server inside a 200 is worth asking again, which no SDK does by itself": (
        lambda field, expected, got, case: field == "error.retryable" and got
        and case["response"]["status"] == 200
    ),
}  # fmt: skip


def _counts(case: Case, *names: str) -> list[Any]:
    usage = case["info"]["usage_raw"]
    return [usage[name] for name in names if name in usage]


def cases(folder: Path, api: str | None = None) -> Iterator[Case]:
    """The cases of a folder, in the order of their paths."""
    for path in sorted(folder.rglob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(case, dict) and "expected" in case and api in (None, case["api"]):
            yield case


def body_of(case: Case) -> bytes:
    """The bytes of the response."""
    response = case["response"]
    body = response.get("sse", response.get("text"))
    return (json.dumps(response["json"], ensure_ascii=False) if body is None else body).encode()


def decoded(codec: Codec, case: Case, piece: int | None = None) -> tuple[Reply | ProviderError, list[Delta]]:
    """Return the codec's result for the response, fed in pieces of this many bytes or at once."""
    response, body, deltas = case["response"], body_of(case), list[Delta]()
    try:
        if not (case["stream"] and response["status"] == 200):
            return codec.decode(response["status"], response["headers"], body), deltas
        decoder = codec.decoder(response["headers"])
        size = piece or len(body) or 1
        for start in range(0, len(body), size):
            deltas += decoder.feed(body[start : start + size])
        deltas += decoder.end()
        return decoder.finish(), deltas
    except ProviderError as error:
        return error, deltas


def differences(case: Case, outcome: Reply | ProviderError) -> Iterator[tuple[str, Any, Any]]:
    """Each field that is not as expected: its name, what was expected, what came."""
    expected = case["expected"]
    compared: list[tuple[str, Any, Any]]
    if expected.get("truncated"):
        cut = isinstance(outcome, ProviderError) and outcome.retryable
        compared = [("truncated", True, cut or repr(outcome))]
    elif expected.get("error"):
        compared = list(_error_fields(expected["error"], outcome))
    elif isinstance(outcome, ProviderError):
        compared = [("error", None, repr(outcome))]
    else:
        compared = [*_reply_fields(expected, outcome), ("request_id", *_request_ids(case, outcome))]
    for field, wanted, got in compared:
        if wanted != got and not any(is_intended(field, wanted, got, case) for is_intended in INTENDED.values()):
            yield field, wanted, got


def _error_fields(error: dict[str, Any], outcome: Reply | ProviderError) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(outcome, Reply):
        yield "error", error["message"], "a reply"
        return
    names = [str(name) for name in (error["code"], error["type"]) if name not in (None, "")]
    yield "error.status", error["status"], outcome.status
    if names or outcome.code is None:  # the SDK reads no code beside an error that is a string
        yield "error.code", True, outcome.code in names or (not names and outcome.code is None) or outcome.code
    if not error.get("message_missing"):
        yield "error.message", error["message"], outcome.message
    if str(error.get("retry_after", "")).replace(".", "", 1).isdigit():
        yield "error.retry_after", float(error["retry_after"]), outcome.retry_after_s
    yield "error.retryable", error["sdk_would_retry"], outcome.retryable


def _reply_fields(expected: dict[str, Any], reply: Reply) -> Iterator[tuple[str, Any, Any]]:
    message = reply.message
    if "content_json" in expected:
        yield "text", expected["content_json"], _parsed(message.text)
    else:
        yield "text", expected["text"] or None, message.text or None
    yield "reasoning", expected["reasoning"] or None, message.reasoning or None
    yield "refusal", expected["refusal"] or None, reply.refusal
    calls = message.function_calls
    yield "tool_calls", [call["name"] for call in expected["tool_calls"]], [call.name for call in calls]
    for call, got in zip(expected["tool_calls"], calls, strict=False):
        yield "tool_call.id", call["id"] or None, got.provider_id
        if call.get("kind") == "custom":
            yield "tool_call.input", call["input"], got.arguments_json
        elif "arguments_raw" in call:
            yield "tool_call.arguments", call["arguments_raw"] or "", got.arguments_json
        else:
            yield "tool_call.arguments", call["arguments"], _parsed(got.arguments_json)
    usage = expected["usage"] or {}
    yield "usage.input_tokens", usage.get("input_tokens_total", usage.get("input_tokens")), reply.usage.input_tokens
    yield "usage.output_tokens", usage.get("output_tokens_total", usage.get("output_tokens")), reply.usage.output_tokens
    for name in ("cached_tokens", "cache_write_tokens", "reasoning_tokens"):
        yield f"usage.{name}", usage.get(name), getattr(reply.usage, name)
    yield "finish", expected["finish"], reply.finish
    yield "finish_reason", expected["finish_reason"] or None, reply.finish_raw
    yield "model", expected["model"] or None, reply.model
    yield "response_id", expected["response_id"] or None, reply.response_id


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _request_ids(case: Case, reply: Reply) -> tuple[Any, Any]:
    headers = case["response"]["headers"]
    known = [headers[name] for name in ("x-request-id", "request-id") if name in headers]
    return (known[0], reply.request_id) if known else (None, None)


def problems(codec: Codec, case: Case) -> Iterator[str]:
    """All that is wrong with how the codec reads a case."""
    whole, deltas = decoded(codec, case)
    for field, wanted, got in differences(case, whole):
        yield f"{field}: expected {wanted!r}, got {got!r}"
    if not case["stream"] or case["response"]["status"] != 200:
        return
    if isinstance(whole, Reply) and (problem := mismatch(whole, deltas)):
        yield problem
    for piece in PIECES if len(body_of(case)) <= MOST_BYTES else PIECES[1:]:
        outcome, pieces = decoded(codec, case, piece)
        same = (
            outcome.report() == whole.report()
            if isinstance(outcome, ProviderError) and isinstance(whole, ProviderError)
            else outcome == whole
        )
        if not same or pieces != deltas:
            yield f"in pieces of {piece}: {outcome!r} instead of {whole!r}"


def main() -> int:
    """Check a folder from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--api")
    options = parser.parse_args()
    good, bad, skipped = Counter[str](), Counter[str](), Counter[str]()
    for case in cases(options.folder, options.api):
        place = f"{case['api']} {case['provider']}"
        codec = CODECS.get(case["api"])
        if codec is None:
            skipped[place] += 1
            continue
        found = list(problems(codec, case))
        for problem in found:
            print(f"{case['provider']}/{case['id']}: {problem[:1000]}")
        (bad if found else good)[place] += 1
    for place in sorted(good | bad | skipped):
        print(f"{place:40} {good[place]:5} as expected {bad[place]:5} different {skipped[place]:5} skipped")
    print(f"{'all':40} {good.total():5} as expected {bad.total():5} different {skipped.total():5} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
