"""One agent call is one explicit finite-state machine.

Importing this package loads nothing else, reads no environment and touches no disk: each name below is loaded
from its module when it is first used.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fsm_agent.agents import Agent as Agent
    from fsm_agent.agents import AgentBase as AgentBase
    from fsm_agent.agents import AgentConfig as AgentConfig
    from fsm_agent.agents import Classification as Classification
    from fsm_agent.agents import Conversation as Conversation
    from fsm_agent.agents import RunHandle as RunHandle
    from fsm_agent.agents import build_agent as build_agent
    from fsm_agent.agents import handoff as handoff
    from fsm_agent.call import AgentCall as AgentCall
    from fsm_agent.call import Approved as Approved
    from fsm_agent.call import CallResult as CallResult
    from fsm_agent.call import Denied as Denied
    from fsm_agent.call import Limits as Limits
    from fsm_agent.call import Modified as Modified
    from fsm_agent.call import Price as Price
    from fsm_agent.call import Reason as Reason
    from fsm_agent.call import restore as restore
    from fsm_agent.call import snapshot as snapshot
    from fsm_agent.clients import Client as Client
    from fsm_agent.clients import FallbackClient as FallbackClient
    from fsm_agent.clients import client_for as client_for
    from fsm_agent.errors import CallFailed as CallFailed
    from fsm_agent.errors import CallSuspended as CallSuspended
    from fsm_agent.errors import ConfigError as ConfigError
    from fsm_agent.errors import FsmAgentError as FsmAgentError
    from fsm_agent.errors import ParseError as ParseError
    from fsm_agent.errors import PromptError as PromptError
    from fsm_agent.errors import ProviderError as ProviderError
    from fsm_agent.errors import RateLimited as RateLimited
    from fsm_agent.errors import Retry as Retry
    from fsm_agent.errors import SnapshotError as SnapshotError
    from fsm_agent.errors import TimedOut as TimedOut
    from fsm_agent.errors import UsageError as UsageError
    from fsm_agent.functions import Context as Context
    from fsm_agent.functions import Function as Function
    from fsm_agent.functions import Retries as Retries
    from fsm_agent.functions import Toolset as Toolset
    from fsm_agent.functions import function as function
    from fsm_agent.mcp import MCPServer as MCPServer
    from fsm_agent.messages import Document as Document
    from fsm_agent.messages import Done as Done
    from fsm_agent.messages import FunctionCall as FunctionCall
    from fsm_agent.messages import Image as Image
    from fsm_agent.messages import Message as Message
    from fsm_agent.messages import Payload as Payload
    from fsm_agent.messages import Reply as Reply
    from fsm_agent.messages import Settings as Settings
    from fsm_agent.messages import Stepped as Stepped
    from fsm_agent.messages import Suspended as Suspended
    from fsm_agent.messages import TextDelta as TextDelta
    from fsm_agent.messages import Usage as Usage
    from fsm_agent.prompts import Dialog as Dialog
    from fsm_agent.prompts import Prompt as Prompt
    from fsm_agent.prompts import PromptModel as PromptModel
    from fsm_agent.prompts import Prompts as Prompts
    from fsm_agent.prompts import Task as Task
    from fsm_agent.prompts import first_of as first_of
    from fsm_agent.store import MemoryStore as MemoryStore
    from fsm_agent.store import Runs as Runs
    from fsm_agent.store import SqliteStore as SqliteStore
    from fsm_agent.workers import Worker as Worker
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "agents": "Agent AgentBase AgentConfig Classification Conversation RunHandle build_agent handoff",
            "clients": "Client FallbackClient client_for",
            "errors": (
                "CallFailed CallSuspended ConfigError FsmAgentError ParseError PromptError ProviderError "
                "RateLimited Retry SnapshotError TimedOut UsageError"
            ),
            "functions": "Context Function Retries Toolset function",
            "call": "AgentCall Approved CallResult Denied Limits Modified Price Reason restore snapshot",
            "mcp": "MCPServer",
            "messages": (
                "Document Done FunctionCall Image Message Payload Reply Settings Stepped Suspended TextDelta Usage"
            ),
            "prompts": "Dialog Prompt PromptModel Prompts Task first_of",
            "store": "MemoryStore Runs SqliteStore",
            "workers": "Worker",
        },
    )
