"""Names from other libraries with their counterparts here, for error messages that suggest the right name.

There is a single table, `WORDS`, for unknown arguments, call options, configuration keys, message keys and imports, so
each entry must suit all of these.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, signature
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, ClassVar, Self

from fsm_agent._internal.text import guess
from fsm_agent.errors import hint

_NEAR = 0.75  # minimum similarity for imported names, because a wild guess misleads

_USED = {  # our words, and their counterparts in pydantic-ai, openai-agents, LangGraph, LangChain, LLLM and llm
    "functions=[…]": "tools toolsets mcp_servers handoffs",
    "output=…": "output_type result_type response_format response_model",
    "system=…": "instructions system_prompt system_message",
    "model='provider:model', or a client": "model_name llm client client_name default_inner",
    "model=client_for('provider:model', …), with an address and a key": "api_key base_url",
    "settings=Settings(…)": "model_settings model_args temperature top_p max_tokens",
    "limits=Limits(rounds=…)": "max_turns max_iterations max_interrupt_times rounds",
    "limits=Limits(rounds=…) of an Agent, or limits=fsm_agent.flows.FlowLimits(steps=…) of a Flow": "recursion_limit",
    "limits=Limits(deadline_s=…)": "timeout deadline_s",
    "limits=Limits(parse_retries=…)": "retries max_retries max_exception_retry",
    "limits=Limits(recalls=…)": "max_llm_recall",
    "limits=Limits(…)": "usage_limits",
    "context=[…] of an Agent": "history_processors processors masking message_trimming",
    "hooks=[…]": "callbacks",
    "store=…": "checkpointer session",
    "environment={'clock': …}": "clock",
    "approve=…": "require_approval",
    "approve=… of an Agent, or a state of a Flow made by @fsm_agent.flows.wait": "interrupt_before interrupt_after",
    "check=…, or a validator in the type of the output": "output_validator output_validators output_guardrails",
    "a type, Agent[Shop, str](…), and deps=… of call": "deps_type context_type",
    "deps=… of call": "deps context",
    "on_exception=… of a Prompt": "exception_handler",
    "on_interrupt=… of a Prompt": "interrupt_handler",
    "extra={…} of call": "metadata",
    "Payload.text('…').with_image('cat.png') as the task": "image images",
    "Payload.text('…').with_document('bill.pdf') as the task": "document documents file files attachments",
    "agent.conversation('…').call": "session_id thread_id",
    "the same argument of Agent(…), of agent.changed(…), or of a Prompt as the task": "functions output settings",
    "the same argument of Agent(…), or of agent.changed(…)": "model system limits hooks approve check stop_when store",
    "settings=Settings(temperature=…), or an attribute of an AgentBase": "profile",
    "an attribute of an AgentBase, or a key of build_agent": "system_path prompts agent_type agent_configs",
    "result.dialog, and pass after=result to call": "message_history messages history",
}
_IMPORTED = {  # the same for imported names
    "@function, and functions=[…] of an Agent": "tool tool_plain function_tool",
    "Function": "Tool FunctionTool StructuredTool",
    "Context": "RunContext RunContextWrapper",
    "Retry": "ModelRetry ToolException",
    "a method, Agent(…).call(…)": "Runner AgentExecutor",
    "Agent": "create_agent create_react_agent",
    "Agent('provider:model')": "ChatOpenAI ChatAnthropic init_chat_model get_model",
    "Settings": "ModelSettings",
    "Limits": "UsageLimits RunConfig",
    "CallFailed": "UnexpectedModelBehavior UsageLimitExceeded MaxTurnsExceeded",
    "Message.of(…)": "HumanMessage SystemMessage AIMessage ModelMessage",
    "Prompt": "PromptTemplate ChatPromptTemplate",
    "Image.of(…), or Document.of(…)": "ImageUrl BinaryContent",
    "MCPServer.stdio(…)": "MCPServerStdio",
    "MCPServer.http(…)": "MCPServerStreamableHTTP MCPServerStreamableHttp",
    "MemoryStore": "MemorySaver InMemorySaver",
    "SqliteStore": "SqliteSaver SQLiteSession",
    "fsm_agent.testing.Script": "TestModel FunctionModel",
    "fsm_agent.flows.Flow": "StateGraph",
    "fsm_agent.flows.wait": "interrupt",
    "fsm_agent.flows.end": "END",
    "the argument start of fsm_agent.flows.Flow": "START",
    "a row, state.done(target)": "Command",
    "fsm_agent.flows.each": "Send",
    "mode=… of a Prompt": "NativeOutput ToolOutput PromptedOutput",
}
IMPORTS: Mapping[str, str] = {word: right for right, words in _IMPORTED.items() for word in words.split()}
WORDS: Mapping[str, str] = {word: right for right, words in _USED.items() for word in words.split()} | dict(IMPORTS)


def remedy(word: str, known: Iterable[str] = (), ours: Mapping[str, str] = WORDS) -> str:
    """Return what to append to a message about an unknown word, to suggest its counterpart here or a similar word."""
    known = list(known)
    return f"; use {ours[word]}" if word in ours else hint(word, known) if known else ""


class KnownArguments:
    """A base class for dataclasses that suggest the right name for an unknown constructor argument.

    The check is in ``__new__``, because a generated ``__init__`` cannot take unknown arguments, and a handwritten one
    would repeat every field.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __new__(cls, /, *args: Any, **options: Any) -> Self:
        if unknown := [name for name in options if name not in cls.__dataclass_fields__]:
            own = signature(cls.__init__).parameters  # a subclass may have other arguments
            takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in own.values())
            known = [name for name in own if name != "self"]
            if not takes_any and (wrong := next((name for name in unknown if name not in known), None)):
                right = WORDS.get(wrong, "")
                is_of_agent = "=" in right and " of " not in right and right.partition("=")[0] not in known
                raise TypeError(
                    f"{cls.__name__} has no argument {wrong!r}{remedy(wrong, known)}{' of an Agent' * is_of_agent}"
                )
        return super().__new__(cls)


def unknown_import(name: str) -> Exception:
    """Return the error for an unknown name in the package's top module.  The error suggests a counterpart, if any.

    For ``from fsm_agent import name``, Python replaces an `AttributeError` with its own `ImportError`, so a suggestion
    must be in an `ImportError`.  There are no suggestions for submodules, because Python calls this function before it
    loads them.
    """
    top = sys.modules["fsm_agent"]
    plain = AttributeError(f"module 'fsm_agent' has no attribute {name!r}", name=name, obj=top)
    if name.startswith("_") or find_spec(f"fsm_agent.{name}") is not None:
        return plain
    if homes := [room.__name__ for room in _rooms() if name in getattr(room, "__all__", ())]:
        right = f": {name} is in {' and '.join(homes)}"
    else:
        right = remedy(name, ours=IMPORTS) or guess(name, top.__all__, _NEAR)
    return ImportError(f"cannot import name {name!r} from 'fsm_agent'{right}", name="fsm_agent") if right else plain


def _rooms() -> Iterator[ModuleType]:
    top = sys.modules["fsm_agent"]
    for room in (*[info.name for info in iter_modules(top.__path__) if info.ispkg], "errors", "flows.orchestrator"):
        with suppress(ImportError):
            yield import_module(f"fsm_agent.{room}")
