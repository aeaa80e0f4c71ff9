"""Test doubles for agents, and what tests ask of values and registries.

`script` holds a model with scripted replies and a clock that moves only on a sleep; `pytest_plugin` is the plugin.
`explore` walks every path through a flow.
Nothing in the package needs any of it to run.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.testing.exploration import Explored as Explored
    from fsm_agent.testing.exploration import explore as explore
    from fsm_agent.testing.recordings import vcr_config as vcr_config
    from fsm_agent.testing.script import Delayed as Delayed
    from fsm_agent.testing.script import FakeClock as FakeClock
    from fsm_agent.testing.script import Pieces as Pieces
    from fsm_agent.testing.script import Script as Script
    from fsm_agent.testing.script import ScriptEntry as ScriptEntry
    from fsm_agent.testing.script import ScriptError as ScriptError
    from fsm_agent.testing.script import function_call as function_call
    from fsm_agent.testing.script import model_requests as model_requests
    from fsm_agent.testing.script import no_model_requests as no_model_requests
    from fsm_agent.testing.script import token_reply as token_reply
    from fsm_agent.testing.values import as_json as as_json
    from fsm_agent.testing.values import check_record as check_record
    from fsm_agent.testing.values import example_result as example_result
    from fsm_agent.testing.values import registries as registries
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "exploration": "Explored explore",
            "recordings": "vcr_config",
            "script": (
                "Delayed FakeClock Pieces Script ScriptEntry ScriptError function_call model_requests "
                "no_model_requests token_reply"
            ),
            "values": "as_json check_record example_result registries",
        },
    )
