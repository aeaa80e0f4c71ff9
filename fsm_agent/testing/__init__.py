"""Test doubles for agents, and conformance suites for your own codecs, clients and stores.

`script` holds a model with scripted replies and a clock that moves only on a sleep; `pytest_plugin` is the plugin.
`explore` walks every path through a flow.
Nothing in the package needs any of it to run.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.testing.client_conformance import ClientConformance as ClientConformance
    from fsm_agent.testing.client_conformance import Endless as Endless
    from fsm_agent.testing.codec_conformance import CodecConformance as CodecConformance
    from fsm_agent.testing.exploration import Explored as Explored
    from fsm_agent.testing.exploration import explore as explore
    from fsm_agent.testing.journal_conformance import JournalConformance as JournalConformance
    from fsm_agent.testing.lease_conformance import LeaseConformance as LeaseConformance
    from fsm_agent.testing.listing_conformance import ListingConformance as ListingConformance
    from fsm_agent.testing.queue_conformance import QueueConformance as QueueConformance
    from fsm_agent.testing.script import Delayed as Delayed
    from fsm_agent.testing.script import FakeClock as FakeClock
    from fsm_agent.testing.script import Pieces as Pieces
    from fsm_agent.testing.script import Script as Script
    from fsm_agent.testing.script import ScriptEntry as ScriptEntry
    from fsm_agent.testing.script import ScriptError as ScriptError
    from fsm_agent.testing.script import call as call
    from fsm_agent.testing.script import model_requests as model_requests
    from fsm_agent.testing.script import no_model_requests as no_model_requests
    from fsm_agent.testing.script import token_reply as token_reply
    from fsm_agent.testing.store_conformance import StoreConformance as StoreConformance
    from fsm_agent.testing.streams import framed as framed
    from fsm_agent.testing.turns import Turn as Turn
    from fsm_agent.testing.turns import TurnPart as TurnPart
    from fsm_agent.testing.values import as_json as as_json
    from fsm_agent.testing.values import check_record as check_record
    from fsm_agent.testing.values import registries as registries
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "client_conformance": "ClientConformance Endless",
            "codec_conformance": "CodecConformance",
            "exploration": "Explored explore",
            "journal_conformance": "JournalConformance",
            "lease_conformance": "LeaseConformance",
            "listing_conformance": "ListingConformance",
            "queue_conformance": "QueueConformance",
            "script": (
                "Delayed FakeClock Pieces Script ScriptEntry ScriptError call model_requests no_model_requests "
                "token_reply"
            ),
            "store_conformance": "StoreConformance",
            "streams": "framed",
            "turns": "Turn TurnPart",
            "values": "as_json check_record registries",
        },
        needs={"hypothesis": "hypothesis", "pytest": "pytest"},
    )
