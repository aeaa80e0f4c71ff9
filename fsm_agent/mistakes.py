"""Errors for invalid arguments, which name what would be right.

Users of other libraries try their words: `AGENT_WORDS` and the tables below it have ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import FrozenInstanceError
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from fsm_agent._internal.field_checks import is_finite, is_whole
from fsm_agent._internal.redaction import mask_keys
from fsm_agent._internal.values import ValueType, field_names
from fsm_agent.errors import UsageError, hint

T = TypeVar("T")
Rights: TypeAlias = tuple[tuple[str, Callable[[Any], bool], str], ...]  # of fields: a check, and what would pass it

MAX_SHOWN_CHARS = 80
MAX_DEPTH = 50  # of JSON within JSON

_DIALOG = "after=…, as in call('…', after=result), or a Dialog as the task"
_ROUNDS = "limits=Limits(rounds=…)"
_PROMPT = "a Prompt as the task: call(Prompt('…', {}))"

AGENT_WORDS = {
    **dict.fromkeys(
        ("tools", "toolsets", "tool_list", "agents", "handoffs", "sub_agents", "mcp_servers"), "functions=[…]"
    ),
    **dict.fromkeys(("output_type", "result_type", "response_model", "response_format", "output_schema"), "output=…"),
    **dict.fromkeys(("instructions", "instruction", "system_prompt", "system_message"), "system=…"),
    **dict.fromkeys(("max_turns", "max_iterations", "max_steps", "recursion_limit"), _ROUNDS),
    **dict.fromkeys(("model_settings", "generation_config"), "settings=Settings(…)"),
    **dict.fromkeys(("usage_limits", "timeout"), "limits=Limits(…)"),
    **dict.fromkeys(("callbacks", "event_stream_handler"), "hooks=[…]"),
    **dict.fromkeys(("client", "llm"), "the model: Agent(client)"),
    **dict.fromkeys(("message_history", "messages", "history"), _DIALOG),
    **dict.fromkeys(("system_instruction", "developer_prompt", "goal", "backstory", "personality"), "system=…"),
    **dict.fromkeys(("max_iter", "max_rounds", "max_round", "max_loops"), _ROUNDS),
    **dict.fromkeys(("memory", "checkpointer", "session", "db", "storage"), "store=…"),
    **dict.fromkeys(("history_processors", "history_processor", "trim_messages"), "processors=[…]"),
    **dict.fromkeys(("guardrails", "input_guardrails", "output_guardrails"), "validators in the type of the output"),
    **dict.fromkeys(("human_in_the_loop", "interrupt_before", "human_input_mode", "require_approval"), "approve=…"),
    **dict.fromkeys(("verbose", "debug", "instrument", "tracing"), "hooks=[…], or the logger 'fsm_agent'"),
    **dict.fromkeys(("model_name", "model_id", "llm_config", "chat_model", "provider"), "Agent('provider:model')"),
    **dict.fromkeys(("function_tools", "builtin_tools", "tool", "plugins"), "functions=[…]"),
    **dict.fromkeys(("output_retries", "result_retries", "max_retries"), "limits=Limits(parse_retries=…)"),
    **dict.fromkeys(("deps_type", "context_type"), "a type, Agent[Shop, str](…), and deps=… of call"),
    "result_processor": "results=ResultPipeline(processor=…)",
    "on_tool_call": "approve=…",
    "parallel_tool_execution": "limits=Limits(parallel=…)",
    "loop_detection": "limits=Limits(identical_rounds=…)",
    "max_exception_retry": "limits=Limits(parse_retries=…)",
    "profile": "settings=Settings(…), such as Settings(temperature=0); a preset is a key of a configuration",
    "deps": "deps=… of call",
    "retries": "limits=Limits(parse_retries=…)",
    "base_url": "a client as the model: Agent(client_for('provider:model', base_url=…))",
    "api_key": "a client as the model: Agent(client_for('provider:model', api_key=…))",
}
PROMPT_WORDS = {
    **{word: right for word, right in AGENT_WORDS.items() if right in ("functions=[…]", "output=…")},
    **dict.fromkeys(("prompt", "text", "task"), "the template, as Prompt('…')"),
    **dict.fromkeys(("system", "system_prompt", "instructions"), "system=… of the Agent"),
    **dict.fromkeys(("name", "id"), "path=…"),
    "two_stage": "mode='two_stage'",
    "xml_tags": "parser=tagged('…')",
    "allow_web_search": "hosted_tools=[WebSearch()]",
    "computer_use_config": "hosted_tools=[ComputerUse(…)]",
    **{f"{kind}_handler": f"on_{kind}=…" for kind in ("exception", "interrupt", "final")},
}
SETTINGS_WORDS = {
    **dict.fromkeys(("max_output_tokens", "max_completion_tokens", "max_new_tokens"), "max_tokens=…"),
    **dict.fromkeys(("stop_sequences", "stop_words"), "stop=…"),
    **dict.fromkeys(("parallel_tool_calls", "parallel"), "parallel_function_calls=…"),
    **dict.fromkeys(("thinking", "effort", "reasoning"), "reasoning_effort=…"),
    **dict.fromkeys(("logprobs", "n_logprobs"), "top_logprobs=…"),
}
CALL_WORDS = {
    **dict.fromkeys(("message_history", "messages", "history", "chat_history", "dialog"), _DIALOG),
    **dict.fromkeys(("max_turns", "max_iterations", "max_steps", "recursion_limit"), f"{_ROUNDS} of the Agent"),
    **dict.fromkeys(("usage_limits", "limits", "timeout"), "limits=Limits(…) of the Agent"),
    **dict.fromkeys(("model_settings", "settings", "config"), "settings=Settings(…) of the Agent, or of a Prompt"),
    **dict.fromkeys(("context", "ctx", "dependencies"), "deps=…"),
    **dict.fromkeys(("metadata", "tags", "trace_metadata"), "extra={…}"),
    **dict.fromkeys(("output_type", "result_type", "response_model", "output"), _PROMPT.format("output=…")),
    **dict.fromkeys(("tools", "functions", "toolsets"), _PROMPT.format("functions=[…]")),
    **dict.fromkeys(("system", "system_prompt", "instructions"), "system=… of the Agent"),
    "client": "model=…",
    **dict.fromkeys(("hooks", "callbacks", "stop_when", "approve"), "an argument of the Agent"),
    **dict.fromkeys(
        ("session", "session_id", "thread_id", "conversation_id", "memory"), "agent.conversation('…').call"
    ),
    "stream": "stream('…') of the agent",
    "usage": "an agent among functions=[…], whose tokens are counted by themselves",
}
AGENT_METHODS = {
    **dict.fromkeys(("run_sync", "invoke", "ask", "generate", "chat", "kickoff", "predict", "query"), "call"),
    **dict.fromkeys(("ainvoke", "run_async", "arun_sync", "agenerate", "achat", "kickoff_async"), "acall"),
    **dict.fromkeys(("run_stream_sync", "stream_sync", "iter", "stream_events"), "stream"),
    **dict.fromkeys(("run_stream", "run_stream_events", "astream_events", "run_streamed"), "astream"),
    **dict.fromkeys(("override", "clone", "copy", "with_config"), "changed(model=…)"),
    **dict.fromkeys(("tool", "tool_plain"), "@function, and Agent(…, functions=[…])"),
    **dict.fromkeys(("tools", "bind_tools", "add_tool", "register_tool", "toolset"), "Agent(…, functions=[…])"),
    **dict.fromkeys(("register_function", "register_for_llm", "register_for_execution"), "Agent(…, functions=[…])"),
    **dict.fromkeys(("complete", "completion", "respond", "send", "execute", "answer", "print_response"), "call"),
    **dict.fromkeys(("acomplete", "arespond", "asend", "aexecute", "akickoff", "aquery"), "acall"),
    **dict.fromkeys(("output_validator", "result_validator"), "validators in the type of the output"),
    **dict.fromkeys(("with_structured_output", "result_type"), "Agent(…, output=…)"),
    **dict.fromkeys(("batch", "abatch", "run_many"), "map of an AgentBase"),
    **dict.fromkeys(("history", "messages", "chat_history", "memory"), "dialog of a result, or conversation('…')"),
    **dict.fromkeys(("get_state", "update_state", "checkpointer"), "runs, with Agent(…, store='runs.db')"),
    **dict.fromkeys(("event_handler", "on_event", "add_hook", "callbacks"), "Agent(…, hooks=[…])"),
    **dict.fromkeys(("deps_type", "output_schema"), "a type, Agent[Shop, str](…)"),
    **dict.fromkeys(("instructions", "system_prompt"), "Agent(…, system=…)"),
    **dict.fromkeys(("as_tool", "to_tool"), "as_function"),
    "output_type": "output",
}


def shown(value: object) -> str:
    """Return a value as a message may show it: its `repr`, cut, without keys.

    Of a mapping, whose values may be secret, only the numbers are shown.
    """
    if isinstance(value, Mapping):
        plain = {key: repr(item) if isinstance(item, int | float | None) else "…" for key, item in value.items()}
        text = f"{{{', '.join([f'{key!r}: {item}' for key, item in plain.items()])}}}"
    else:
        try:
            text = repr(value)
        except ValueError:  # a number of more digits than Python writes out
            return f"a huge {type(value).__name__}"
    text = mask_keys(text)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


def wrong(what: str, value: object, right: str, kind: type[UsageError] = UsageError) -> UsageError:
    """Return the error for an argument whose value is not ``right``."""
    return kind(f"{what} is {shown(value)}: {right} would be right")


def check(what: str, value: object, is_right: bool, right: str, kind: type[UsageError] = UsageError) -> None:
    """Raise the error of `wrong` unless the value is right."""
    if not is_right:
        raise wrong(what, value, right, kind)


def check_fields(instance: object, owner: str, rights: Rights) -> None:
    """Raise the error of `wrong` for the first field that is not right."""
    for name, is_right, right in rights:
        value = getattr(instance, name)
        check(f"{name} of {owner}", value, is_right(value), right)


def plain_json(what: str, value: object) -> dict[str, Any]:
    """Return a mapping as JSON will have it: a copy of dictionaries, lists and plain values.

    Raises:
        UsageError: JSON cannot hold something in it; the message says where.
    """
    check(what, value, isinstance(value, Mapping), "a mapping such as {'ticket': 17}")
    plain: dict[str, Any] = _plain_json(what, value, MAX_DEPTH)
    return plain


def _plain_json(what: str, value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        check(what, value, not any("\ud800" <= c <= "\udfff" for c in value), "text without half a surrogate pair")
        return str(value)
    if is_whole(value):
        return int(value)  # type: ignore[call-overload]
    if isinstance(value, float) and is_finite(value):
        return float(value)
    if isinstance(value, Mapping | list | tuple) and not depth:
        raise UsageError(f"{what[:MAX_SHOWN_CHARS]}… is nested more than {MAX_DEPTH} deep: flatter data would be right")
    if isinstance(value, Mapping):
        for key in value:
            check(f"a key of {what}", key, isinstance(key, str), "text")
        return {
            _plain_json(f"a key of {what}", k, 1): _plain_json(f"{what}[{k!r:.40}]", item, depth - 1)
            for k, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain_json(f"{what}[{index}]", item, depth - 1) for index, item in enumerate(value)]
    right = "text, a finite number, True, False, None, or a list or mapping of these"
    raise wrong(what, value, right)


def explains_mistakes(ours: Callable[[], Mapping[str, str]]) -> Callable[[T], T]:
    """Return a decorator for a frozen dataclass: what is refused is answered with a word on what would be right.

    Args:
        ours: Returns the equivalents of arguments of other libraries.
    """

    def explain(cls: Any) -> Any:
        init = cls.__init__

        @wraps(init)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                init(self, *args, **kwargs)
            except TypeError:
                known = field_names(cls)
                unknown = [word for word in kwargs if word not in known]
                if unknown:
                    raise unknown_argument(cls.__name__, unknown[0], known, ours()) from None
                if len(args) > len(cls.__match_args__):
                    raise by_name(cls.__name__, cls.__match_args__, known) from None
                raise

        def __setattr__(self: Any, name: str, value: object) -> None:
            problem = f"cannot assign to field {name!r} of {cls.__name__}"
            change = f"changed({name}=…)" if hasattr(cls, "changed") else "dataclasses.replace"
            raise FrozenInstanceError(f"{problem}: {change} returns one that differs")

        cls.__init__, cls.__setattr__ = __init__, __setattr__
        return cls

    return explain


class Explained(ValueType):
    """The class of values that refuse unknown arguments with a word on the right ones.

    Attributes:
        words: The equivalents of arguments of other libraries.
    """

    words: Mapping[str, str] = MappingProxyType({})

    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
            try:
                return super().__call__(*args, **kwargs)
            except TypeError:
                if unknown := [word for word in kwargs if word not in cls.__struct_fields__]:
                    raise unknown_argument(cls.__name__, unknown[0], cls.__struct_fields__, cls.words) from None
                if len(args) > len(cls.__match_args__):
                    raise by_name(cls.__name__, cls.__match_args__, cls.__struct_fields__) from None
                raise


def unknown_argument(owner: str, word: str, known: Iterable[str], ours: Mapping[str, str]) -> TypeError:
    """Return the error for an unknown argument of ``owner``.

    Args:
        owner: The class or method.
        word: The argument.
        known: The arguments that it has.
        ours: The equivalents of arguments of other libraries.
    """
    return TypeError(f"{owner} has no argument {word!r}{remedy(word, known, ours)}")


def by_name(owner: str, positional: Sequence[str], known: Sequence[str]) -> TypeError:
    """Return the error for more arguments by position than ``owner`` takes so."""
    first = f"only {', '.join(positional)} by position" if positional else "no arguments by position"
    named = [f"{name}=…" for name in known if name not in positional]
    return TypeError(f"{owner} takes {first}: the others are given by name, {', '.join(named)[:MAX_SHOWN_CHARS]}…")


def remedy(word: str, known: Iterable[str], ours: Mapping[str, str]) -> str:
    """Return the end of a message about an unknown word: what is right instead."""
    return f": here that is {ours[word]}" if word in ours else hint(word, known)
