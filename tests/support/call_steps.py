"""Steps of a call that a test takes one by one."""

from __future__ import annotations

from typing import Any

from fsm_agent.errors import ErrorReport
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.effects import CallModel
from fsm_agent.lifecycle.limits import Limits
from fsm_agent.lifecycle.outcomes import Begun, ModelFailed, Replied, Returned
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import Reply
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt
from support.walks import PROMPT


def begun(limits: Limits = Limits(), prompt: Prompt = PROMPT, **options) -> AgentCall:
    call = AgentCall.seed(Dialog([Message.of("system", "You add.")]).put("17 + 25?"), prompt, limits=limits, **options)
    call.advance("begin", Begun(at_s=100.0, id="c1"))
    return call


def say(call: AgentCall, *content, **facts) -> AgentCall:
    reply = Reply.of(*content)
    call.advance(call.effects[0].key, Replied(reply=reply.changed(**facts)))
    return call


def fail(call: AgentCall, *, retryable: bool = True, delay_s: float = 1.0, at_s: float = 100.0) -> AgentCall:
    error = ErrorReport(kind="Overloaded", message="busy", status=529, retryable=retryable)
    call.advance(call.effects[0].key, ModelFailed(error=error, delay_s=delay_s, at_s=at_s))
    return call


def keys(call: AgentCall) -> list[str]:
    return [effect.key for effect in call.effects]


def texts(messages) -> list[str]:
    return [message.text for message in messages]


def request(call: AgentCall):
    (effect,) = call.effects
    assert isinstance(effect, CallModel)
    return effect.request


def returned(call: AgentCall, text: str = "ok", *, is_error: bool = False, **facts: Any) -> AgentCall:
    """What the first of the functions that run gave."""
    call.advance(call.effects[0].key, Returned(text=text, is_error=is_error, **facts))
    return call
