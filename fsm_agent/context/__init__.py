"""What requests show of a long dialog: passes, budgets, summaries.

Each request has its own view; the dialog itself stays whole.  Nothing here sends a request to a model: a summary is an
extra request that the call makes.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.context.budget import Budget as Budget
    from fsm_agent.context.budget import default_passes as default_passes
    from fsm_agent.context.passes import compress as compress
    from fsm_agent.context.passes import keep_last as keep_last
    from fsm_agent.context.passes import mask as mask
    from fsm_agent.context.passes import once as once
    from fsm_agent.context.passes import relevant as relevant
    from fsm_agent.context.passes import shorten as shorten
    from fsm_agent.context.plan import ContextPlan as ContextPlan
    from fsm_agent.context.release import context_release as context_release
    from fsm_agent.context.summary import summarize as summarize
    from fsm_agent.context.tokens import TextTokenizer as TextTokenizer
    from fsm_agent.context.tokens import Tokenizer as Tokenizer
    from fsm_agent.context.tokens import tiktoken_of as tiktoken_of
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "budget": "Budget default_passes",
            "passes": "compress keep_last mask once relevant shorten",
            "plan": "ContextPlan",
            "release": "context_release",
            "summary": "summarize",
            "tokens": "TextTokenizer Tokenizer tiktoken_of",
        },
    )
