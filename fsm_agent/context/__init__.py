"""Selection and shortening of the messages in a request: masking of old results, windows, custom processors.

Each request has its own view; the dialog itself stays whole.  Nothing here sends a request to a model.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.context.masking import Masking as Masking
    from fsm_agent.context.masking import context_release as context_release
    from fsm_agent.context.relevance import KeepRelevant as KeepRelevant
    from fsm_agent.context.shortening import SendOnce as SendOnce
    from fsm_agent.context.shortening import TruncateResults as TruncateResults
    from fsm_agent.context.token_budget import TokenBudget as TokenBudget
    from fsm_agent.context.view import ByRecord as ByRecord
    from fsm_agent.context.window import KeepLastN as KeepLastN
    from fsm_agent.context.window import TokenWindow as TokenWindow
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "masking": "Masking context_release",
            "relevance": "KeepRelevant",
            "shortening": "SendOnce TruncateResults",
            "token_budget": "TokenBudget",
            "view": "ByRecord",
            "window": "KeepLastN TokenWindow",
        },
    )
