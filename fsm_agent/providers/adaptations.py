"""Adaptations of a request to a model that does not support its preferences.

Codecs decide with the functions here, and report their decisions with `adaptations`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from fsm_agent.errors import UsageError
from fsm_agent.functions.function import Function
from fsm_agent.lifecycle.effects import Request, Settings
from fsm_agent.messages.message import Message
from fsm_agent.providers.codec import Profile
from fsm_agent.providers.schemas import schema_in_words

CHOICES = ("auto", "required", "none")  # values that are not names of functions
SAMPLING = ("temperature", "top_p")
_SEED = frozenset({"seed"})
_ALL = frozenset({*SAMPLING, *_SEED})


def tells_schema(request: Request, profile: Profile) -> bool:
    """Return True if the schema of the answer is described in words."""
    takes_schema = profile.native_schema and (profile.schema_with_functions or not request.functions)
    return request.output.schema is not None and not takes_schema


def schema_words(request: Request, profile: Profile) -> str | None:
    """Return the words that describe the schema of the answer; None if they are not needed."""
    schema = request.output.schema
    if schema is None or not tells_schema(request, profile):
        return None
    return schema_in_words(schema, with_functions=bool(request.functions))


def check_settings(settings: Settings, model: str, profile: Profile) -> None:
    """Refuse the settings that the model does not support, and that nothing can replace.

    Raises:
        UsageError: There is one of them.
    """
    if settings.top_logprobs is not None and not profile.logprobs:
        raise UsageError(f"the model {model!r} reports no logprobs, and top_logprobs is {settings.top_logprobs!r}")
    if settings.stop and not profile.stop:
        raise UsageError(f"the model {model!r} takes no stop sequences, and stop is {settings.stop!r}")


def taken_settings(profile: Profile) -> frozenset[str]:
    """Return the sampling settings that the model takes; the others are omitted."""
    return _ALL if profile.temperature else _SEED


def offered_functions(request: Request, profile: Profile) -> tuple[tuple[Function, ...], str]:
    """Return the functions to offer, and the choice among them: 'auto', 'required', 'none' or a name.

    Raises:
        UsageError: No function of the request has this name.
    """
    functions, choice = request.functions, request.tool_choice
    if choice not in CHOICES:
        chosen = tuple([function for function in functions if function.name == choice])
        if not chosen:
            names = ", ".join([repr(function.name) for function in functions])
            raise UsageError(f"tool_choice is {choice!r}: 'auto', 'required', 'none' or one of {names} would be right")
        if profile.named_tool_choice:
            return functions, choice
        functions, choice = chosen, "required"
    return functions, choice if profile.required_tool_choice or choice != "required" else "auto"


def _has_user_after_results(messages: Iterable[Message]) -> bool:
    return ("tool", "user") in pairwise([message.role for message in messages])


def adaptations(
    request: Request, profile: Profile, *, tells_schema: bool, taken_settings: Collection[str]
) -> tuple[str, ...]:
    """Return a description of each adaptation of the request.

    Args:
        request: The request.
        profile: The capabilities of the model.
        tells_schema: True if its codec describes the schema in words.
        taken_settings: The sampling settings that its codec sends.
    """
    choice = request.tool_choice
    bridges = not profile.user_after_results and _has_user_after_results(request.messages)
    if not bridges and not tells_schema and choice == "auto" and len(taken_settings) == len(_ALL):
        return ()  # as nearly always
    notes = []
    if bridges:
        notes.append("a word of the model's was put between results and a user's message: it takes no other order")
    if tells_schema:
        beside = " beside functions" if profile.native_schema and not profile.schema_with_functions else ""
        notes.append(f"the schema was told in words: the model does not take it{beside}")
    for name in (*SAMPLING, "seed"):
        if name not in taken_settings and (value := getattr(request.settings, name)) is not None:
            notes.append(f"{name}={value!r} was left out: the model does not take it here")
    if choice != "auto" and (request.functions or request.settings.hosted_tools):
        functions, offered = offered_functions(request, profile)
        if len(functions) < len(request.functions):
            notes.append(f"{choice!r} was the only function offered: the model takes no function's name")
        if offered == "auto":
            notes.append(f"tool_choice={choice!r} became 'auto': the model cannot be made to call")
    return tuple(notes)
