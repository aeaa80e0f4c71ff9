"""Tools for tests: a model with scripted replies, a fake clock, and `explore`, which follows every path through a flow.

The pytest plugin is in `pytest_plugin`.
"""

import fsm_agent.flows  # before its modules; see CONTRIBUTING.md
from fsm_agent.testing.exploration import Explored, explore
from fsm_agent.testing.recordings import vcr_config
from fsm_agent.testing.script import (
    Delayed,
    FakeClock,
    Pieces,
    Script,
    ScriptEntry,
    ScriptError,
    as_json,
    check_record,
    example_result,
    function_call,
    model_requests,
    no_model_requests,
    registries,
    token_reply,
)

__all__ = [
    "Delayed",
    "Explored",
    "FakeClock",
    "Pieces",
    "Script",
    "ScriptEntry",
    "ScriptError",
    "as_json",
    "check_record",
    "example_result",
    "explore",
    "function_call",
    "model_requests",
    "no_model_requests",
    "registries",
    "token_reply",
    "vcr_config",
]
