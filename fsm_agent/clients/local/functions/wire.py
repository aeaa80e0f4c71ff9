"""Two requests to a llama.cpp server besides chat: complete text, and split text into tokens.

Based on https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md (November 2026) and on measurements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fsm_agent.call.effects import Request
from fsm_agent.clients.endpoint import Endpoint
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import Reply, Settings
from fsm_agent.providers.codec import Codec, Profile, to_json
from fsm_agent.providers.failures import failure, unreadable
from fsm_agent.providers.openai_chat_reply import ChatDecoder
from fsm_agent.providers.sse import read_json


class _Raw(Codec):
    def headers(self, api_key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def adapted(self, request: Request, profile: Profile) -> tuple[str, ...]:
        return ()

    def decoder(self, headers: Mapping[str, str]) -> ChatDecoder:
        return _Completed(headers)


class Completions(_Raw):
    """The codec for ``/completions``, which takes a grammar in ``extra_body``."""

    name = "llama-completions"

    def path(self, model: str, *, stream: bool) -> str:
        return "/completions"

    def encode(self, request: Request, *, model: str, profile: Profile, stream: bool, provider: str = "") -> bytes:
        settings = request.settings
        body = {"model": model, "prompt": request.messages[0].text, "max_tokens": settings.max_tokens, "temperature": 0}
        if settings.top_logprobs is not None:
            body["logprobs"] = 1
        return to_json({**body, "cache_prompt": True, **settings.extra_body})


class _Completed(ChatDecoder):
    def take_whole(self, document: dict[str, Any]) -> None:
        for choice in document.get("choices") or ():
            if isinstance(choice, dict):
                choice["message"] = {"content": choice.get("text")}
        super().take_whole(document)


class Tokens(_Raw):
    """The codec for ``/tokenize``, which is not under ``/v1``.  A reply's text is the JSON list of token ids."""

    name = "llama-tokens"

    def path(self, model: str, *, stream: bool) -> str:
        return "/tokenize"

    def encode(self, request: Request, *, model: str, profile: Profile, stream: bool, provider: str = "") -> bytes:
        return to_json({"content": request.messages[0].text, "add_special": False, "parse_special": False})

    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        if not 200 <= status < 300:
            raise failure(status, headers, body)
        try:
            ids = [int(token) for token in read_json(body)["tokens"]]
        except (LookupError, TypeError, ValueError):
            raise unreadable("the reply holds no tokens", headers, body) from None
        return Reply.of(json.dumps(ids))


COMPLETIONS, TOKENS = Completions(), Tokens()


class Step(NamedTuple):
    """One of the requests from which a reply is built."""

    request: Request
    codec: Codec | None = None  # by default the codec of the model's provider
    is_answer: bool = False  # True if its reply is the final one, which may be streamed

    def at(self, endpoint: Endpoint) -> Endpoint:
        if self.codec is None:
            return endpoint
        base_url = endpoint.base_url
        if self.codec is TOKENS:
            base_url = base_url.copy_with(path=base_url.path.rstrip("/").removesuffix("/v1") or "/")
        return endpoint.changed(provider=endpoint.provider.changed(codec=self.codec), base_url=base_url)


def completion(prompt: str, grammar: str, max_tokens: int, *, logprobs: bool = False) -> Step:
    """Return a request to complete text with the likeliest tokens that a grammar allows."""
    settings = Settings(max_tokens=max_tokens, top_logprobs=0 if logprobs else None, extra_body={"grammar": grammar})
    return Step(Request(messages=[Message.of("user", prompt)], settings=settings), COMPLETIONS)


def tokens(text: str) -> Step:
    """Return a request to split text into tokens."""
    return Step(Request(messages=[Message.of("user", text)]), TOKENS)
