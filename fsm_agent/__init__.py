"""One agent call is one explicit finite-state machine.

Importing this package reads no environment and touches no disk; heavy libraries are loaded where they are first needed.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal import __version__ as __version__
from fsm_agent.agents import Agent, AgentBase, AgentConfig, Conversation, RunHandle, build_agent, handoff
from fsm_agent.call import AgentCall, Approved, CallResult, Denied, Limits, Modified
from fsm_agent.clients import Client, FallbackClient
from fsm_agent.errors import (
    CallFailed,
    CallSuspended,
    ConfigError,
    FsmAgentError,
    ParseError,
    PromptError,
    ProviderError,
    RateLimited,
    Retry,
    UsageError,
)
from fsm_agent.functions import Context, Function, Retries, Toolset, function
from fsm_agent.messages import (
    Document,
    Done,
    FunctionCall,
    Image,
    Message,
    Payload,
    Reply,
    Settings,
    Stepped,
    Suspended,
    TextDelta,
    Usage,
)
from fsm_agent.prompts import Dialog, Prompt, Prompts
from fsm_agent.store import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from fsm_agent.mcp import MCPServer
    from fsm_agent.workers import Worker
else:
    # Few programs need these two, which bring all flows, a client of another protocol, and a server of their own.
    def __getattr__(name: str) -> object:
        from importlib import import_module

        if home := {"MCPServer": "fsm_agent.mcp", "Worker": "fsm_agent.workers"}.get(name):
            return getattr(import_module(home), name)
        from fsm_agent.foreign_names import unknown_import

        raise unknown_import(name)


__all__ = [
    "Agent",
    "AgentBase",
    "AgentCall",
    "AgentConfig",
    "Approved",
    "CallFailed",
    "CallResult",
    "CallSuspended",
    "Client",
    "ConfigError",
    "Context",
    "Conversation",
    "Denied",
    "Dialog",
    "Document",
    "Done",
    "FallbackClient",
    "FsmAgentError",
    "Function",
    "FunctionCall",
    "Image",
    "Limits",
    "MCPServer",
    "MemoryStore",
    "Message",
    "Modified",
    "ParseError",
    "Payload",
    "Prompt",
    "PromptError",
    "Prompts",
    "ProviderError",
    "RateLimited",
    "Reply",
    "Retries",
    "Retry",
    "RunHandle",
    "Settings",
    "SqliteStore",
    "Stepped",
    "Suspended",
    "TextDelta",
    "Toolset",
    "Usage",
    "UsageError",
    "Worker",
    "build_agent",
    "function",
    "handoff",
]
