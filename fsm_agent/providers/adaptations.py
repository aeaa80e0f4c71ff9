"""Adaptations of a request to a model that does not support its preferences.

Codecs decide with the functions here, and report their decisions with `adaptations`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import pairwise

from fsm_agent.errors import UsageError
from fsm_agent.functions.function import Function
from fsm_agent.lifecycle.effects import TEXT, Request, Settings
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import OutputMode
from fsm_agent.prompts.output import Output
from fsm_agent.providers.codec import LEFT_OUT, Profile, RequestForm
from fsm_agent.providers.encoding import kept
from fsm_agent.providers.schemas import output_in_words

CHOICES = ("auto", "required", "none")  # values that are not names of functions
SAMPLING = ("temperature", "top_p")
_SEED = frozenset({"seed"})
_ALL = frozenset({*SAMPLING, *_SEED})
_FREE = "tool_choice={choice!r} became 'auto': the model cannot be made to call"


def choose_form(
    request: Request, profile: Profile, *, takes: Callable[[Output], bool] | None = None, can_force: bool = True
) -> RequestForm:
    """Decide how the model is asked for the output.

    The prompt's mode comes before the profile's.  What the model does not take is asked for in words.

    Args:
        request: The request.
        profile: The capabilities of the model.
        takes: Whether the wire can express the schema of an output; None: it can express all.
        can_force: False if the model cannot be made to call a function in this request.
    """
    output = request.output
    if output.is_text:
        return RequestForm(request)
    mode, problem = _mode(request, profile, takes)
    notes = (f"the schema was told in words: {problem}",) if problem else ()
    if mode == "native":
        return RequestForm(request, mode)
    if mode == "prompted":
        words = kept(output, output_in_words, bool(request.functions))
        return RequestForm(request.changed(output=TEXT), mode, words, notes)
    if request.functions and request.tool_choice not in ("auto", "none"):  # that one first; the answer comes later
        return RequestForm(request.changed(output=TEXT), mode)
    functions = () if request.tool_choice == "none" else request.functions
    choice = "required" if can_force else "auto"
    notes = () if can_force else (_FREE.format(choice="required"),)
    changes = {"output": TEXT, "functions": (*functions, output.function), "tool_choice": choice}
    return RequestForm(request.changed(**changes), mode, notes=notes)


def _mode(request: Request, profile: Profile, takes: Callable[[Output], bool] | None) -> tuple[OutputMode, str]:
    """Return the mode, and why it is not the one that was wanted, if so."""
    wanted, output = request.mode or profile.output_mode, request.output
    if output.schema is None and wanted != "prompted":
        return "prompted", f"there is no JSON schema of {output.name}"
    if wanted != "native":
        return wanted, ""
    if profile.native_schema and not profile.schema_with_functions and request.functions:
        return "prompted", "the model does not take it beside functions"
    if not profile.native_schema or (takes is not None and not takes(output)):
        return "prompted", "the model does not take it"
    return "native", ""


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


def adaptations(form: RequestForm, profile: Profile, *, taken_settings: Collection[str]) -> tuple[str, ...]:
    """Return a description of each adaptation of the request.

    Args:
        form: The request, and how it asks for the output.
        profile: The capabilities of the model.
        taken_settings: The sampling settings that its codec sends.
    """
    request = form.request
    choice = request.tool_choice
    bridges = not profile.user_after_results and _has_user_after_results(request.messages)
    if not bridges and not form.notes and choice == "auto" and len(taken_settings) == len(_ALL):
        return ()  # as nearly always
    notes = []
    if bridges:
        notes.append("a word of the model's was put between results and a user's message: it takes no other order")
    notes += form.notes
    for name in (*SAMPLING, "seed"):
        if name not in taken_settings and (value := getattr(request.settings, name)) is not None:
            notes.append(f"{name}={value!r} {LEFT_OUT}")
    if choice != "auto" and (request.functions or request.settings.hosted_tools):
        functions, offered = offered_functions(request, profile)
        if len(functions) < len(request.functions):
            notes.append(f"{choice!r} was the only function offered: the model takes no function's name")
        if offered == "auto":
            notes.append(_FREE.format(choice=choice))
    return tuple(notes)
