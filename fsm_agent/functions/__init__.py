"""Functions for models to call: their signatures, schemas and policies, toolsets and versions.

A function is described and its arguments are checked here.  Nothing here runs one: `fsm_agent.runtime` does.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports
from fsm_agent.functions.function import Function as Function
from fsm_agent.functions.function import function as function  # at once: its module, imported later, would hide it

if TYPE_CHECKING:
    from fsm_agent.functions.context import Context as Context
    from fsm_agent.functions.policy import Default as Default
    from fsm_agent.functions.policy import Policy as Policy
    from fsm_agent.functions.policy import Retries as Retries
    from fsm_agent.functions.registered import register_function as register_function
    from fsm_agent.functions.toolset import FunctionSource as FunctionSource
    from fsm_agent.functions.toolset import Toolset as Toolset
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "context": "Context",
            "function": "Function function",
            "policy": "Default Policy Retries",
            "registered": "register_function",
            "toolset": "FunctionSource Toolset",
        },
    )
