"""One agent call is one explicit finite-state machine.

Importing this package loads none of its subpackages, reads no environment variables and touches no files.  Each name is
loaded from its subpackage when it is first used.  This keeps imports such as `import fsm_agent.messages` cheap and the
command line fast.
"""

from threading import RLock
from typing import TYPE_CHECKING

from fsm_agent._internal import __version__ as __version__

if TYPE_CHECKING:
    from fsm_agent.agents import Agent as Agent
    from fsm_agent.agents import AgentBase as AgentBase
    from fsm_agent.agents import AgentConfig as AgentConfig
    from fsm_agent.agents import Conversation as Conversation
    from fsm_agent.agents import RunHandle as RunHandle
    from fsm_agent.agents import build_agent as build_agent
    from fsm_agent.agents import handoff as handoff
    from fsm_agent.call import AgentCall as AgentCall
    from fsm_agent.call import Approved as Approved
    from fsm_agent.call import CallFailed as CallFailed
    from fsm_agent.call import CallResult as CallResult
    from fsm_agent.call import CallSuspended as CallSuspended
    from fsm_agent.call import Denied as Denied
    from fsm_agent.call import Limits as Limits
    from fsm_agent.call import Modified as Modified
    from fsm_agent.clients import Client as Client
    from fsm_agent.clients import FallbackClient as FallbackClient
    from fsm_agent.errors import ConfigError as ConfigError
    from fsm_agent.errors import FsmAgentError as FsmAgentError
    from fsm_agent.errors import ParseError as ParseError
    from fsm_agent.errors import PromptError as PromptError
    from fsm_agent.errors import ProviderError as ProviderError
    from fsm_agent.errors import RateLimited as RateLimited
    from fsm_agent.errors import Retry as Retry
    from fsm_agent.errors import UsageError as UsageError
    from fsm_agent.functions import Context as Context
    from fsm_agent.functions import Function as Function
    from fsm_agent.functions import Retries as Retries
    from fsm_agent.functions import Toolset as Toolset
    from fsm_agent.functions.function import function as function
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
    from fsm_agent.prompts import Prompts as Prompts
    from fsm_agent.store import MemoryStore as MemoryStore
    from fsm_agent.store import SqliteStore as SqliteStore
    from fsm_agent.workers import Worker as Worker
else:
    _ROOMS = {
        "agents": "Agent AgentBase AgentConfig Conversation RunHandle build_agent handoff",
        "call": "AgentCall Approved CallFailed CallResult CallSuspended Denied Limits Modified",
        "clients": "Client FallbackClient",
        "errors": "ConfigError FsmAgentError ParseError PromptError ProviderError RateLimited Retry UsageError",
        "functions": "Context Function Retries Toolset function",
        "mcp": "MCPServer",
        "messages": "Document Done FunctionCall Image Message Payload Reply Settings Stepped Suspended TextDelta Usage",
        "prompts": "Dialog Prompt Prompts",
        "store": "MemoryStore SqliteStore",
        "workers": "Worker",
    }
    # If two threads loaded two subpackages at once, each could wait for a module of the other, and Python would hand
    # out a partially loaded module.  No subpackage takes this lock while it loads.
    _LOADING = RLock()
    _HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}
    __all__ = list(_HOMES)

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _HOMES:
            raise import_module("fsm_agent.foreign_names").unknown_import(name)
        with _LOADING:
            value = globals()[name] = getattr(import_module(f"fsm_agent.{_HOMES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
