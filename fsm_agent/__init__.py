"""One agent call is one explicit finite-state machine.

Importing this package loads nothing else, reads no environment and touches no disk: each name below is loaded
from its module when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "agents.agent": ("Agent",),
    "agents.classification.calibration": ("Calibration", "brier_score"),
    "agents.classification.classification": ("Classification", "MultiClassification"),
    "agents.conversation": ("Conversation",),
    "agents.delegation.handoffs": ("handoff",),
    "agents.worker": ("Worker",),
    "clients.cassette": ("Cassette",),
    "lifecycle.call": ("AgentCall",),
    "cli.terminal_hook": ("TerminalHook",),
    "clients.client": ("Client", "client_for"),
    "clients.command.client": ("CommandClient",),
    "clients.command.output": ("JsonFields",),
    "clients.http.network": ("Network",),
    "functions.context": ("Context",),
    "prompts.dialog": ("Dialog",),
    "prompts.dialogs": ("Dialogs",),
    "runtime.drive": ("adrive", "arun", "drive", "run"),
    "lifecycle.effects": ("AskApproval", "Request", "Settings"),
    "errors": (
        "AuthFailed",
        "BadReply",
        "CallFailed",
        "CallSuspended",
        "ConfigError",
        "ContextTooLong",
        "FsmAgentError",
        "IllegalTrigger",
        "JournalError",
        "OutcomeError",
        "Overloaded",
        "ParseError",
        "ParseFailed",
        "PromptChanged",
        "PromptError",
        "ProviderError",
        "RateLimited",
        "ReplayError",
        "Retry",
        "SnapshotError",
        "TagNotFound",
        "TimedOut",
        "UsageError",
    ),
    "clients.fallback": ("FallbackClient",),
    "functions.function": ("Function", "function"),
    "messages.event": ("Done", "FunctionProgress", "PartialOutput", "Stepped", "Suspended", "TextDelta"),
    "messages.hosted_tool": ("CodeExecution", "ComputerUse", "HostedMCP", "UserLocation", "WebSearch"),
    "clients.rate_limited": ("RateLimitedClient",),
    "lifecycle.limits": ("Limits",),
    "lifecycle.context.masking": ("Masking", "context_release"),
    "lifecycle.context.relevance": ("KeepRelevant",),
    "lifecycle.context.shortening": ("SendOnce", "TruncateResults"),
    "lifecycle.context.token_budget": ("TokenBudget",),
    "lifecycle.context.view": ("ByRecord",),
    "mcp.client": ("MCPServer", "MCPServerError", "MCPToolError"),
    "mcp.config": ("mcp_servers",),
    "messages.message": ("Citation", "Document", "FunctionCall", "FunctionResult", "Image", "Message"),
    "messages.payload": ("Payload",),
    "agents.metrics": ("Metrics",),
    "runtime.middleware": ("Cache", "Throttle"),
    "lifecycle.outcomes": (
        "Approved",
        "Begun",
        "Cancelled",
        "Denied",
        "FunctionFailed",
        "Injected",
        "Modified",
        "Replied",
        "Returned",
        "RunAgain",
        "Stopped",
    ),
    "prompts.extraction.first_of": ("first_of",),
    "prompts.extraction.parsing": ("Parsed", "Parser", "ParserInput", "parser"),
    "prompts.extraction.strategies": (
        "code",
        "extract_json",
        "json_anywhere",
        "json_block",
        "keyword",
        "regex",
        "tagged",
        "verbatim",
    ),
    "prompts.extraction.tags": ("TagContent", "TagParser"),
    "prompts.intents.action": ("Action", "Attribute", "InnerText"),
    "prompts.intents.action_set": ("ActionSet",),
    "prompts.intents.declared": ("intent",),
    "prompts.intents.frame": ("IntentExtractor", "IntentFrame"),
    "functions.policy": ("Default", "Retries"),
    "lifecycle.prices": ("Price",),
    "runtime.costs.known_prices": ("known_price",),
    "prompts.library": ("Prompts", "register_prompt"),
    "prompts.prompt": ("Prompt",),
    "prompts.rendering.choices": ("PromptChoice",),
    "prompts.rendering.example": ("examples_section", "prompt_example"),
    "prompts.rendering.field": ("PromptField",),
    "prompts.rendering.guide": ("prompt_guide",),
    "prompts.rendering.model": ("PromptEnum", "PromptModel", "TypeMarked"),
    "prompts.rendering.parts": ("prompt_parts",),
    "prompts.rendering.schema": ("prompt_schema",),
    "prompts.rendering.text": ("prompt_text",),
    "clients.rate_limit": ("RateLimit",),
    "lifecycle.interpret": ("Stop", "StopContext"),
    "lifecycle.record": ("Reason", "State"),
    "lifecycle.reports.failure": ("RequestFailure",),
    "lifecycle.reports.phases": ("PhaseDetector", "PhaseHook", "PhaseRule"),
    "lifecycle.reports.rounds": ("RoundReport", "rounds_of"),
    "lifecycle.reports.spans": ("spans_of",),
    "agents.agent_base": ("AgentBase", "AsyncAgentBase"),
    "agents.config.agent_config": ("AgentConfig",),
    "agents.many": ("TaskResult", "TaskResults"),
    "agents.registry": ("build_agent",),
    "clients.registered": ("register_client",),
    "functions.registered": ("register_function",),
    "messages.reply": ("Reply", "Usage"),
    "runtime.results.cache": ("ResultCache",),
    "runtime.results.pipeline": ("ResultPipeline", "truncate"),
    "lifecycle.call_result": ("CallResult",),
    "lifecycle.snapshot": ("restore", "snapshot"),
    "lifecycle.stopping": ("any_of", "max_cost_usd", "max_function_calls", "max_tokens", "stop_on"),
    "store.errors": (
        "AlreadyAnswered",
        "Conflict",
        "LeaseLost",
        "NotAsked",
        "RunBusy",
        "RunExists",
        "RunUnknown",
        "StoreError",
    ),
    "store.memory": ("MemoryStore",),
    "store.runs": ("Runs",),
    "store.sqlite": ("SqliteStore",),
    "store.store": ("Store",),
    "functions.toolset": ("FunctionSource", "Toolset"),
    "runtime.logs.logging_hook": ("LoggingHook",),
    "runtime.world": ("World",),
    "providers.catalog": ("register_provider",),
    "providers.chunks": ("ReplyParts",),
    "providers.codec": ("Codec", "Profile"),
    "providers.json_codec": ("JsonCodec",),
    "providers.provider": ("Provider", "Wire"),
    "lifecycle.context.window": ("KeepLastN", "TokenWindow"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

_OF_EXTRAS = ("TerminalHook",)  # need an extra, so that ``from fsm_agent import *`` leaves them out

__all__ = sorted({*_HOME} - {*_OF_EXTRAS})

if TYPE_CHECKING:
    from fsm_agent.agents.agent import Agent as Agent
    from fsm_agent.agents.agent_base import AgentBase as AgentBase
    from fsm_agent.agents.agent_base import AsyncAgentBase as AsyncAgentBase
    from fsm_agent.agents.classification.calibration import Calibration as Calibration
    from fsm_agent.agents.classification.calibration import brier_score as brier_score
    from fsm_agent.agents.classification.classification import Classification as Classification
    from fsm_agent.agents.classification.classification import MultiClassification as MultiClassification
    from fsm_agent.agents.config.agent_config import AgentConfig as AgentConfig
    from fsm_agent.agents.conversation import Conversation as Conversation
    from fsm_agent.agents.delegation.handoffs import handoff as handoff
    from fsm_agent.agents.many import TaskResult as TaskResult
    from fsm_agent.agents.many import TaskResults as TaskResults
    from fsm_agent.agents.metrics import Metrics as Metrics
    from fsm_agent.agents.registry import build_agent as build_agent
    from fsm_agent.agents.worker import Worker as Worker
    from fsm_agent.cli.terminal_hook import TerminalHook as TerminalHook
    from fsm_agent.clients.cassette import Cassette as Cassette
    from fsm_agent.clients.client import Client as Client
    from fsm_agent.clients.client import client_for as client_for
    from fsm_agent.clients.command.client import CommandClient as CommandClient
    from fsm_agent.clients.command.output import JsonFields as JsonFields
    from fsm_agent.clients.fallback import FallbackClient as FallbackClient
    from fsm_agent.clients.http.network import Network as Network
    from fsm_agent.clients.rate_limit import RateLimit as RateLimit
    from fsm_agent.clients.rate_limited import RateLimitedClient as RateLimitedClient
    from fsm_agent.clients.registered import register_client as register_client
    from fsm_agent.errors import AuthFailed as AuthFailed
    from fsm_agent.errors import BadReply as BadReply
    from fsm_agent.errors import CallFailed as CallFailed
    from fsm_agent.errors import CallSuspended as CallSuspended
    from fsm_agent.errors import ConfigError as ConfigError
    from fsm_agent.errors import ContextTooLong as ContextTooLong
    from fsm_agent.errors import FsmAgentError as FsmAgentError
    from fsm_agent.errors import IllegalTrigger as IllegalTrigger
    from fsm_agent.errors import JournalError as JournalError
    from fsm_agent.errors import OutcomeError as OutcomeError
    from fsm_agent.errors import Overloaded as Overloaded
    from fsm_agent.errors import ParseError as ParseError
    from fsm_agent.errors import ParseFailed as ParseFailed
    from fsm_agent.errors import PromptChanged as PromptChanged
    from fsm_agent.errors import PromptError as PromptError
    from fsm_agent.errors import ProviderError as ProviderError
    from fsm_agent.errors import RateLimited as RateLimited
    from fsm_agent.errors import ReplayError as ReplayError
    from fsm_agent.errors import Retry as Retry
    from fsm_agent.errors import SnapshotError as SnapshotError
    from fsm_agent.errors import TagNotFound as TagNotFound
    from fsm_agent.errors import TimedOut as TimedOut
    from fsm_agent.errors import UsageError as UsageError
    from fsm_agent.functions.context import Context as Context
    from fsm_agent.functions.function import Function as Function
    from fsm_agent.functions.function import function as function
    from fsm_agent.functions.policy import Default as Default
    from fsm_agent.functions.policy import Retries as Retries
    from fsm_agent.functions.registered import register_function as register_function
    from fsm_agent.functions.toolset import FunctionSource as FunctionSource
    from fsm_agent.functions.toolset import Toolset as Toolset
    from fsm_agent.lifecycle.call import AgentCall as AgentCall
    from fsm_agent.lifecycle.call_result import CallResult as CallResult
    from fsm_agent.lifecycle.context.masking import Masking as Masking
    from fsm_agent.lifecycle.context.masking import context_release as context_release
    from fsm_agent.lifecycle.context.relevance import KeepRelevant as KeepRelevant
    from fsm_agent.lifecycle.context.shortening import SendOnce as SendOnce
    from fsm_agent.lifecycle.context.shortening import TruncateResults as TruncateResults
    from fsm_agent.lifecycle.context.token_budget import TokenBudget as TokenBudget
    from fsm_agent.lifecycle.context.view import ByRecord as ByRecord
    from fsm_agent.lifecycle.context.window import KeepLastN as KeepLastN
    from fsm_agent.lifecycle.context.window import TokenWindow as TokenWindow
    from fsm_agent.lifecycle.effects import AskApproval as AskApproval
    from fsm_agent.lifecycle.effects import Request as Request
    from fsm_agent.lifecycle.effects import Settings as Settings
    from fsm_agent.lifecycle.interpret import Stop as Stop
    from fsm_agent.lifecycle.interpret import StopContext as StopContext
    from fsm_agent.lifecycle.limits import Limits as Limits
    from fsm_agent.lifecycle.outcomes import Approved as Approved
    from fsm_agent.lifecycle.outcomes import Begun as Begun
    from fsm_agent.lifecycle.outcomes import Cancelled as Cancelled
    from fsm_agent.lifecycle.outcomes import Denied as Denied
    from fsm_agent.lifecycle.outcomes import FunctionFailed as FunctionFailed
    from fsm_agent.lifecycle.outcomes import Injected as Injected
    from fsm_agent.lifecycle.outcomes import Modified as Modified
    from fsm_agent.lifecycle.outcomes import Replied as Replied
    from fsm_agent.lifecycle.outcomes import Returned as Returned
    from fsm_agent.lifecycle.outcomes import RunAgain as RunAgain
    from fsm_agent.lifecycle.outcomes import Stopped as Stopped
    from fsm_agent.lifecycle.prices import Price as Price
    from fsm_agent.lifecycle.record import Reason as Reason
    from fsm_agent.lifecycle.record import State as State
    from fsm_agent.lifecycle.reports.failure import RequestFailure as RequestFailure
    from fsm_agent.lifecycle.reports.phases import PhaseDetector as PhaseDetector
    from fsm_agent.lifecycle.reports.phases import PhaseHook as PhaseHook
    from fsm_agent.lifecycle.reports.phases import PhaseRule as PhaseRule
    from fsm_agent.lifecycle.reports.rounds import RoundReport as RoundReport
    from fsm_agent.lifecycle.reports.rounds import rounds_of as rounds_of
    from fsm_agent.lifecycle.reports.spans import spans_of as spans_of
    from fsm_agent.lifecycle.snapshot import restore as restore
    from fsm_agent.lifecycle.snapshot import snapshot as snapshot
    from fsm_agent.lifecycle.stopping import any_of as any_of
    from fsm_agent.lifecycle.stopping import max_cost_usd as max_cost_usd
    from fsm_agent.lifecycle.stopping import max_function_calls as max_function_calls
    from fsm_agent.lifecycle.stopping import max_tokens as max_tokens
    from fsm_agent.lifecycle.stopping import stop_on as stop_on
    from fsm_agent.mcp.client import MCPServer as MCPServer
    from fsm_agent.mcp.client import MCPServerError as MCPServerError
    from fsm_agent.mcp.client import MCPToolError as MCPToolError
    from fsm_agent.mcp.config import mcp_servers as mcp_servers
    from fsm_agent.messages.event import Done as Done
    from fsm_agent.messages.event import FunctionProgress as FunctionProgress
    from fsm_agent.messages.event import PartialOutput as PartialOutput
    from fsm_agent.messages.event import Stepped as Stepped
    from fsm_agent.messages.event import Suspended as Suspended
    from fsm_agent.messages.event import TextDelta as TextDelta
    from fsm_agent.messages.hosted_tool import CodeExecution as CodeExecution
    from fsm_agent.messages.hosted_tool import ComputerUse as ComputerUse
    from fsm_agent.messages.hosted_tool import HostedMCP as HostedMCP
    from fsm_agent.messages.hosted_tool import UserLocation as UserLocation
    from fsm_agent.messages.hosted_tool import WebSearch as WebSearch
    from fsm_agent.messages.message import Citation as Citation
    from fsm_agent.messages.message import Document as Document
    from fsm_agent.messages.message import FunctionCall as FunctionCall
    from fsm_agent.messages.message import FunctionResult as FunctionResult
    from fsm_agent.messages.message import Image as Image
    from fsm_agent.messages.message import Message as Message
    from fsm_agent.messages.payload import Payload as Payload
    from fsm_agent.messages.reply import Reply as Reply
    from fsm_agent.messages.reply import Usage as Usage
    from fsm_agent.prompts.dialog import Dialog as Dialog
    from fsm_agent.prompts.dialogs import Dialogs as Dialogs
    from fsm_agent.prompts.extraction.first_of import first_of as first_of
    from fsm_agent.prompts.extraction.parsing import Parsed as Parsed
    from fsm_agent.prompts.extraction.parsing import Parser as Parser
    from fsm_agent.prompts.extraction.parsing import ParserInput as ParserInput
    from fsm_agent.prompts.extraction.parsing import parser as parser
    from fsm_agent.prompts.extraction.strategies import code as code
    from fsm_agent.prompts.extraction.strategies import extract_json as extract_json
    from fsm_agent.prompts.extraction.strategies import json_anywhere as json_anywhere
    from fsm_agent.prompts.extraction.strategies import json_block as json_block
    from fsm_agent.prompts.extraction.strategies import keyword as keyword
    from fsm_agent.prompts.extraction.strategies import regex as regex
    from fsm_agent.prompts.extraction.strategies import tagged as tagged
    from fsm_agent.prompts.extraction.strategies import verbatim as verbatim
    from fsm_agent.prompts.extraction.tags import TagContent as TagContent
    from fsm_agent.prompts.extraction.tags import TagParser as TagParser
    from fsm_agent.prompts.intents.action import Action as Action
    from fsm_agent.prompts.intents.action import Attribute as Attribute
    from fsm_agent.prompts.intents.action import InnerText as InnerText
    from fsm_agent.prompts.intents.action_set import ActionSet as ActionSet
    from fsm_agent.prompts.intents.declared import intent as intent
    from fsm_agent.prompts.intents.frame import IntentExtractor as IntentExtractor
    from fsm_agent.prompts.intents.frame import IntentFrame as IntentFrame
    from fsm_agent.prompts.library import Prompts as Prompts
    from fsm_agent.prompts.library import register_prompt as register_prompt
    from fsm_agent.prompts.prompt import Prompt as Prompt
    from fsm_agent.prompts.rendering.choices import PromptChoice as PromptChoice
    from fsm_agent.prompts.rendering.example import examples_section as examples_section
    from fsm_agent.prompts.rendering.example import prompt_example as prompt_example
    from fsm_agent.prompts.rendering.field import PromptField as PromptField
    from fsm_agent.prompts.rendering.guide import prompt_guide as prompt_guide
    from fsm_agent.prompts.rendering.model import PromptEnum as PromptEnum
    from fsm_agent.prompts.rendering.model import PromptModel as PromptModel
    from fsm_agent.prompts.rendering.model import TypeMarked as TypeMarked
    from fsm_agent.prompts.rendering.parts import prompt_parts as prompt_parts
    from fsm_agent.prompts.rendering.schema import prompt_schema as prompt_schema
    from fsm_agent.prompts.rendering.text import prompt_text as prompt_text
    from fsm_agent.providers.catalog import register_provider as register_provider
    from fsm_agent.providers.chunks import ReplyParts as ReplyParts
    from fsm_agent.providers.codec import Codec as Codec
    from fsm_agent.providers.codec import Profile as Profile
    from fsm_agent.providers.json_codec import JsonCodec as JsonCodec
    from fsm_agent.providers.provider import Provider as Provider
    from fsm_agent.providers.provider import Wire as Wire
    from fsm_agent.runtime.costs.known_prices import known_price as known_price
    from fsm_agent.runtime.drive import adrive as adrive
    from fsm_agent.runtime.drive import arun as arun
    from fsm_agent.runtime.drive import drive as drive
    from fsm_agent.runtime.drive import run as run
    from fsm_agent.runtime.logs.logging_hook import LoggingHook as LoggingHook
    from fsm_agent.runtime.middleware import Cache as Cache
    from fsm_agent.runtime.middleware import Throttle as Throttle
    from fsm_agent.runtime.results.cache import ResultCache as ResultCache
    from fsm_agent.runtime.results.pipeline import ResultPipeline as ResultPipeline
    from fsm_agent.runtime.results.pipeline import truncate as truncate
    from fsm_agent.runtime.world import World as World
    from fsm_agent.store.errors import AlreadyAnswered as AlreadyAnswered
    from fsm_agent.store.errors import Conflict as Conflict
    from fsm_agent.store.errors import LeaseLost as LeaseLost
    from fsm_agent.store.errors import NotAsked as NotAsked
    from fsm_agent.store.errors import RunBusy as RunBusy
    from fsm_agent.store.errors import RunExists as RunExists
    from fsm_agent.store.errors import RunUnknown as RunUnknown
    from fsm_agent.store.errors import StoreError as StoreError
    from fsm_agent.store.memory import MemoryStore as MemoryStore
    from fsm_agent.store.runs import Runs as Runs
    from fsm_agent.store.sqlite import SqliteStore as SqliteStore
    from fsm_agent.store.store import Store as Store


if not TYPE_CHECKING:  # a type checker that saw it would take any name

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            from fsm_agent.foreign_names import IMPORTS, remedy

            if name in IMPORTS:  # where a name is imported, Python hides the text of an AttributeError
                raise ImportError(f"cannot import name {name!r} from {__name__!r}{remedy(name)}", name=__name__)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
