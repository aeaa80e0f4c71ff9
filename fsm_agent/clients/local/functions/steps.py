"""Builds one reply from several requests, for a model that cannot call functions or copy from text by itself.

`_made` chooses each request and receives its reply, without I/O; `guided` is the loop that performs the requests.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing
from typing import Any, NamedTuple

from fsm_agent.call.effects import Request
from fsm_agent.clients.local.functions.choosing import chosen
from fsm_agent.clients.local.functions.extraction import extracted, is_extraction
from fsm_agent.clients.local.functions.filling import filled
from fsm_agent.clients.local.functions.grammar import quoted
from fsm_agent.clients.local.functions.question import Question
from fsm_agent.clients.local.functions.wire import Step
from fsm_agent.messages.events import (
    ArgumentsDelta,
    Delta,
    FunctionCallCompleted,
    FunctionCallStarted,
    TextDelta,
    UsageReported,
)
from fsm_agent.messages.message import FunctionCall, FunctionResult, Message
from fsm_agent.messages.reply import UNUSED, Reply, Settings
from fsm_agent.providers.codec import Profile, offered_functions

MAX_TYPED_TOKENS = 256  # default for a typed answer, because the model may never end a string
MAX_CHECKED_CHARS = 200  # results up to this length must appear in the answer
_CUT = f"a typed answer is cut after {MAX_TYPED_TOKENS} tokens, unless settings.max_tokens says otherwise"
_ANSWER = "Answer the question with the result in one short sentence."
_WORD = re.compile(r"\w+(?:\.\d+)?")

Making = Generator[Step, Reply, "Made"]


class Made(NamedTuple):
    """A reply, and how it was made."""

    reply: Reply
    note: str  # "" if there is nothing to note
    is_streamed: bool = False  # True if its deltas have been passed on


def needs_guidance(request: Request) -> bool:
    """Return True for a request that the model cannot answer well in one step."""
    return bool(request.functions) or not request.output.is_text


async def guided(
    request: Request, profile: Profile, perform: Callable[[Step], AsyncGenerator[Delta | Reply]]
) -> AsyncGenerator[Delta | Reply]:
    """Send the requests that one reply is built from, one after the other.  Yield its deltas, then the whole reply."""
    making, usage, count = _made(request, profile), UNUSED, 0
    answer: Any = None  # to the last request
    while True:
        try:
            step = making.send(answer)
        except StopIteration as end:
            made: Made = end.value
            break
        count += 1
        async with aclosing(perform(step)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    answer = item
                elif not isinstance(item, UsageReported):
                    yield item
        usage += answer.usage
    if not made.is_streamed:
        for delta in _deltas(made.reply.message):
            yield delta
    if usage != UNUSED:
        yield UsageReported(usage)
    notes = (f"{made.note} (requests to the model: {count})",) if made.note else ()
    yield made.reply.changed(usage=usage, adapted=(*notes, *made.reply.adapted))


def _deltas(message: Message) -> Iterator[Delta]:
    if text := message.text:
        yield TextDelta(text)
    for index, call in enumerate(message.function_calls):
        yield FunctionCallStarted(index, call.name)
        yield ArgumentsDelta(index, call.arguments_json)
        yield FunctionCallCompleted(index)


def _made(request: Request, profile: Profile) -> Making:
    messages = request.messages
    plain = request.changed(functions=(), tool_choice="auto", settings=_bounded(request))
    if messages and messages[-1].role == "tool":
        return (yield from _answered(plain))
    functions, choice = offered_functions(request, profile)
    asked = next((message.text for message in reversed(messages) if message.role == "user"), "").strip()
    if functions and choice != "none" and asked:
        question = Question(asked)
        if function := (yield from chosen(question, functions, choice != "auto")):
            arguments = yield from filled(question, function)
            called = Reply.of(FunctionCall(name=function.name, arguments_json=quoted(arguments))).changed(
                finish="tool_calls", adapted=question.notes
            )
            return Made(
                called,
                f"{function.name!r} was chosen and filled in step by step: this model cannot call functions itself",
            )
    if is_extraction(request):
        reply = yield from extracted(request)
        return Made(reply, f"the fields of {request.output.name!r} were copied from the task, one by one")
    reply = yield Step(plain, is_answer=True)
    if functions:
        return Made(reply, "the model was asked without functions: none matches the question", is_streamed=True)
    is_cut = reply.is_cut_off and request.settings.max_tokens is None
    return Made(reply, _CUT if is_cut else "", is_streamed=True)


def _bounded(request: Request) -> Settings:
    settings = request.settings
    if request.output.is_text or settings.max_tokens is not None:
        return settings
    return settings.changed(max_tokens=MAX_TYPED_TOKENS)


def _answered(plain: Request) -> Making:
    """Answer from function results, in the model's words if these contain the results."""
    message = plain.messages[-1]
    results = [part for part in message.parts if isinstance(part, FunctionResult)]
    names = ", ".join([repr(result.name) for result in results])
    note = f"the answer was made from the results of {names}"
    if not plain.output.is_text:
        reply = yield Step(plain, is_answer=True)
        return Made(reply, note, is_streamed=True)
    verbatim = "\n".join(map(_verbatim, results))
    if any(result.is_error for result in results):
        return Made(Reply.of(verbatim).changed(finish="stop"), f"{note}, verbatim")
    asked = next((message.text for message in reversed(plain.messages) if message.role == "user"), "")
    statement = " ".join([f"The result is {result.text.strip()}." for result in results])
    words = Message.of("user", f"Question: {asked}\n{statement} {_ANSWER}")
    system = [message for message in plain.messages if message.role == "system"]
    reply = yield Step(plain.changed(messages=[*system, words]))
    text = reply.message.text
    if all(_is_in(result.text, text) for result in results):
        for result in results:  # the model tends to put the results in quotation marks
            text = re.sub(rf'"({re.escape(result.text.strip())})([.]?)"', r"\1\2", text)
        return Made(reply.changed(message=Message.of("assistant", text)), note)
    return Made(reply.changed(message=Message.of("assistant", verbatim), logprobs=()), f"{note}, verbatim")


def _verbatim(result: FunctionResult) -> str:
    return f"{result.name} {'failed' if result.is_error else 'returned'}: {result.text.strip()}"


def _is_in(result: str, answer: str) -> bool:
    if len(result) > MAX_CHECKED_CHARS:
        return bool(answer.strip())
    return set(_WORD.findall(result.lower())) <= set(_WORD.findall(answer.replace(",", "").lower()))
