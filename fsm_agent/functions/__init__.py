"""Functions that models call: their signatures, schemas and policies, and toolsets with versions of functions.

This package describes functions and checks their arguments.  `fsm_agent.runtime` runs them.
"""

import fsm_agent.messages  # before its modules; see CONTRIBUTING.md
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
