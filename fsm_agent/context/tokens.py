"""Counts the tokens in requests.  Each message is counted only once."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import pydantic_core

from fsm_agent._internal.structs import Value
from fsm_agent.call.effects import Request
from fsm_agent.functions.function import Function
from fsm_agent.messages.message import Attachment, Document, FunctionCall, FunctionResult, Image, Part, Reasoning, Text
from fsm_agent.named_objects import needing

ATTACHMENT_TOKENS = 1_000  # roughly the cost of a picture of a million pixels, or of a page of a document
MESSAGE_TOKENS = 4  # for the marks of the role and the end of a message, on the wires that document this cost
_HOSTED_TOOL_TOKENS = 300  # for the provider's description of the tool
# Pieces of text that are about a token for the usual tokenizers: up to six Latin letters, up to three digits, two
# letters of another alphabet, any other character, or a run of spaces.  A single space belongs to the next word.
_PIECES = re.compile(r"[A-Za-z]{1,6}|[0-9]{1,3}|[\u00a0-\u2e7f]{1,2}|\S|\s{2,}|\n")


_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")  # a page of a PDF; pages in compressed streams are not found


class Tokenizer(Protocol):
    """Counts the tokens in a request or in part of it, such as a single message.  A tokenizer must be pure.

    `TextTokenizer` makes a tokenizer from a function that counts the tokens of a string.

    Examples:
        >>> class Words:
        ...     def count(self, request):
        ...         return sum(len(message.text.split()) for message in request.messages)
        >>> Agent(Script("Hi."), context=Budget(hard=8_000, tokenizer=Words())).call("Hello").output
        'Hi.'
    """

    def count(self, request: Request) -> int:
        """Return the number of tokens."""


def estimated_tokens(text: str) -> int:
    """Return a rough estimate of the tokens in some text: a quarter of its characters."""
    return -(-len(text) // 4)


def estimate(text: str) -> int:
    """Estimate the number of tokens in some text.  For prose and code, the estimate is about 10% too high."""
    return len(_PIECES.findall(text))


class TextTokenizer(Value, frozen=True):
    """A tokenizer that counts each string in a request.

    Args:
        tokens: A pure function that returns the number of tokens in a string, such as ``lambda text:
            len(encoding.encode(text))``.

    Examples:
        >>> words = TextTokenizer(lambda text: len(text.split()))
        >>> Agent(Script("Hi."), context=Budget(hard=8_000, tokenizer=words)).call("Hello").output
        'Hi.'
    """

    tokens: Callable[[str], int]

    def count(self, request: Request) -> int:
        """Return the tokens in all text, plus the cost in tokens of each message, attachment and hosted tool."""
        count = 0
        for message in request.messages:
            count += MESSAGE_TOKENS
            for part in message.parts:
                count += self._of_part(part)
        for function in request.functions:
            count += self.tokens(_declaration(function))
        if not request.output.is_text:
            count += self.tokens(_json(request.output.schema))
        return count + _HOSTED_TOOL_TOKENS * len(request.settings.hosted_tools)

    def _of_part(self, part: Part) -> int:
        match part:
            case Text() | Reasoning():
                return self.tokens(part.text)
            case FunctionCall():
                return self.tokens(part.name) + self.tokens(part.arguments_json)
            case FunctionResult():
                return self.tokens(part.text) + sum([self._of_part(one) for one in part.attachments])
            case Document():
                return self.tokens(part.text) if part.text is not None else ATTACHMENT_TOKENS * _pages(part)
            case Image():
                return ATTACHMENT_TOKENS
        return self.tokens(_json(part.data))


def file_tokens(file: Attachment) -> int:
    """Estimate the number of tokens in a file from the characters of a text file or the pages of a PDF."""
    return ESTIMATE._of_part(file)


def _pages(document: Document) -> int:
    return max(1, len(_PAGE.findall(document.data or b"")))


def _declaration(function: Function) -> str:
    return f"{function.name} {function.description} {_json(function.parameters)}"


def _json(value: Any) -> str:
    return pydantic_core.to_json(value, fallback=str).decode()


ESTIMATE = TextTokenizer(estimate)


@lru_cache(maxsize=8)
def tiktoken_of(model: str) -> TextTokenizer:
    """Return OpenAI's tokenizer for a model.  This requires the ``tiktoken`` extra.

    The package downloads its tables when they are first used, unless ``TIKTOKEN_CACHE_DIR`` names a folder that
    contains them.

    Args:
        model: The model's name, such as ``"gpt-4o"``.  For other vendors' models, the newest table is used.

    Raises:
        ConfigError: If the package is not installed.

    Examples:
        >>> tiktoken_of("gpt-5")                                    # doctest: +SKIP
    """
    with needing("tiktoken", "tiktoken_of()"):
        import tiktoken
    try:
        encoding = tiktoken.encoding_for_model(model.rpartition(":")[2])
    except KeyError:
        encoding = tiktoken.get_encoding("o200k_base")
    return TextTokenizer(lambda text: len(encoding.encode(text, disallowed_special=())))
