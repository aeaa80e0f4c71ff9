"""One agent call is one explicit finite-state machine.

Importing this package loads nothing else, reads no environment and touches no disk: each name below is loaded
from its module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "agents": ("Agent",),
    "cassette": ("Cassette",),
    "call": ("AgentCall",),
    "client": ("client_for",),
    "contexts": ("Context",),
    "dialogs": ("Dialog",),
    "drivers": ("adrive", "arun", "drive", "run"),
    "effects": ("Request", "Settings"),
    "errors": (
        "AuthFailed",
        "BadReply",
        "CallFailed",
        "CallSuspended",
        "ConfigError",
        "ContextTooLong",
        "FsmAgentError",
        "IllegalTrigger",
        "OutcomeError",
        "Overloaded",
        "ParseError",
        "PromptError",
        "ProviderError",
        "RateLimited",
        "Retry",
        "SnapshotError",
        "TimedOut",
        "UsageError",
    ),
    "fallback": ("FallbackClient",),
    "functions": ("Function", "function"),
    "hosted_tools": ("CodeExecution", "ComputerUse", "HostedMCP", "UserLocation", "WebSearch"),
    "limited_client": ("RateLimitedClient",),
    "limits": ("Limits",),
    "masking": ("Masking", "context_release"),
    "mcp.client": ("MCPServer", "MCPServerError", "MCPToolError"),
    "mcp.config": ("mcp_servers",),
    "messages": ("Citation", "Document", "FunctionCall", "Image", "Message"),
    "metrics": ("Metrics",),
    "middleware": ("Cache", "Throttle"),
    "outcomes": ("Approved", "Cancelled", "Denied", "Injected", "Modified"),
    "parsing": ("extract_json",),
    "perform": ("World",),
    "policies": ("Default", "Retries"),
    "pools": ("Network",),
    "prices": ("Price",),
    "prompt_library": ("Prompts", "register_prompt"),
    "prompts": ("Prompt",),
    "rate_limit": ("RateLimit",),
    "reading": ("Stop", "StopContext"),
    "record": ("Reason", "State"),
    "registry": ("AgentBase", "AgentConfig", "AsyncAgentBase", "build_agent"),
    "replies": ("Reply", "Usage"),
    "result_cache": ("ResultCache",),
    "result_pipeline": ("ResultPipeline", "truncate"),
    "results": ("CallResult",),
    "snapshots": ("restore", "snapshot"),
    "stopping": ("any_of", "max_cost_usd", "max_function_calls", "max_tokens", "stop_on"),
    "toolsets": ("FunctionSource", "Toolset"),
    "windows": ("KeepLastN", "TokenWindow"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from fsm_agent.agents import Agent as Agent
    from fsm_agent.call import AgentCall as AgentCall
    from fsm_agent.cassette import Cassette as Cassette
    from fsm_agent.client import client_for as client_for
    from fsm_agent.contexts import Context as Context
    from fsm_agent.dialogs import Dialog as Dialog
    from fsm_agent.drivers import adrive as adrive
    from fsm_agent.drivers import arun as arun
    from fsm_agent.drivers import drive as drive
    from fsm_agent.drivers import run as run
    from fsm_agent.effects import Request as Request
    from fsm_agent.effects import Settings as Settings
    from fsm_agent.errors import AuthFailed as AuthFailed
    from fsm_agent.errors import BadReply as BadReply
    from fsm_agent.errors import CallFailed as CallFailed
    from fsm_agent.errors import CallSuspended as CallSuspended
    from fsm_agent.errors import ConfigError as ConfigError
    from fsm_agent.errors import ContextTooLong as ContextTooLong
    from fsm_agent.errors import FsmAgentError as FsmAgentError
    from fsm_agent.errors import IllegalTrigger as IllegalTrigger
    from fsm_agent.errors import OutcomeError as OutcomeError
    from fsm_agent.errors import Overloaded as Overloaded
    from fsm_agent.errors import ParseError as ParseError
    from fsm_agent.errors import PromptError as PromptError
    from fsm_agent.errors import ProviderError as ProviderError
    from fsm_agent.errors import RateLimited as RateLimited
    from fsm_agent.errors import Retry as Retry
    from fsm_agent.errors import SnapshotError as SnapshotError
    from fsm_agent.errors import TimedOut as TimedOut
    from fsm_agent.errors import UsageError as UsageError
    from fsm_agent.fallback import FallbackClient as FallbackClient
    from fsm_agent.functions import Function as Function
    from fsm_agent.functions import function as function
    from fsm_agent.hosted_tools import CodeExecution as CodeExecution
    from fsm_agent.hosted_tools import ComputerUse as ComputerUse
    from fsm_agent.hosted_tools import HostedMCP as HostedMCP
    from fsm_agent.hosted_tools import UserLocation as UserLocation
    from fsm_agent.hosted_tools import WebSearch as WebSearch
    from fsm_agent.limited_client import RateLimitedClient as RateLimitedClient
    from fsm_agent.limits import Limits as Limits
    from fsm_agent.masking import Masking as Masking
    from fsm_agent.masking import context_release as context_release
    from fsm_agent.mcp.client import MCPServer as MCPServer
    from fsm_agent.mcp.client import MCPServerError as MCPServerError
    from fsm_agent.mcp.client import MCPToolError as MCPToolError
    from fsm_agent.mcp.config import mcp_servers as mcp_servers
    from fsm_agent.messages import Citation as Citation
    from fsm_agent.messages import Document as Document
    from fsm_agent.messages import FunctionCall as FunctionCall
    from fsm_agent.messages import Image as Image
    from fsm_agent.messages import Message as Message
    from fsm_agent.metrics import Metrics as Metrics
    from fsm_agent.middleware import Cache as Cache
    from fsm_agent.middleware import Throttle as Throttle
    from fsm_agent.outcomes import Approved as Approved
    from fsm_agent.outcomes import Cancelled as Cancelled
    from fsm_agent.outcomes import Denied as Denied
    from fsm_agent.outcomes import Injected as Injected
    from fsm_agent.outcomes import Modified as Modified
    from fsm_agent.parsing import extract_json as extract_json
    from fsm_agent.perform import World as World
    from fsm_agent.policies import Default as Default
    from fsm_agent.policies import Retries as Retries
    from fsm_agent.pools import Network as Network
    from fsm_agent.prices import Price as Price
    from fsm_agent.prompt_library import Prompts as Prompts
    from fsm_agent.prompt_library import register_prompt as register_prompt
    from fsm_agent.prompts import Prompt as Prompt
    from fsm_agent.rate_limit import RateLimit as RateLimit
    from fsm_agent.reading import Stop as Stop
    from fsm_agent.reading import StopContext as StopContext
    from fsm_agent.record import Reason as Reason
    from fsm_agent.record import State as State
    from fsm_agent.registry import AgentBase as AgentBase
    from fsm_agent.registry import AgentConfig as AgentConfig
    from fsm_agent.registry import AsyncAgentBase as AsyncAgentBase
    from fsm_agent.registry import build_agent as build_agent
    from fsm_agent.replies import Reply as Reply
    from fsm_agent.replies import Usage as Usage
    from fsm_agent.result_cache import ResultCache as ResultCache
    from fsm_agent.result_pipeline import ResultPipeline as ResultPipeline
    from fsm_agent.result_pipeline import truncate as truncate
    from fsm_agent.results import CallResult as CallResult
    from fsm_agent.snapshots import restore as restore
    from fsm_agent.snapshots import snapshot as snapshot
    from fsm_agent.stopping import any_of as any_of
    from fsm_agent.stopping import max_cost_usd as max_cost_usd
    from fsm_agent.stopping import max_function_calls as max_function_calls
    from fsm_agent.stopping import max_tokens as max_tokens
    from fsm_agent.stopping import stop_on as stop_on
    from fsm_agent.toolsets import FunctionSource as FunctionSource
    from fsm_agent.toolsets import Toolset as Toolset
    from fsm_agent.windows import KeepLastN as KeepLastN
    from fsm_agent.windows import TokenWindow as TokenWindow


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
