"""Functions for models to call: their signatures, schemas and policies, toolsets and versions.

A function is described and its arguments are checked here.  Nothing here runs one: `fsm_agent.runtime` does.
"""

from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function, function, register_function
from fsm_agent.functions.policy import Default, Policy, Retries
from fsm_agent.functions.toolset import FunctionSource, Toolset

__all__ = [
    "Context",
    "Default",
    "Function",
    "FunctionSource",
    "Policy",
    "Retries",
    "Toolset",
    "function",
    "register_function",
]
