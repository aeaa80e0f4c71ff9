"""Passes, budgets and summaries: they choose the parts of a long dialog that a request includes.

Each request has its own view, and the dialog itself stays whole.  Nothing here sends a request to a model; the call
makes the extra request for a summary.
"""

import fsm_agent.call  # before its modules; see CONTRIBUTING.md
from fsm_agent.context.fitting import Budget, ContextPlan, default_passes
from fsm_agent.context.passes import compress, context_release, keep_last, mask, once, relevant, shorten
from fsm_agent.context.summary import summarize
from fsm_agent.context.tokens import TextTokenizer, Tokenizer, tiktoken_of

__all__ = [
    "Budget",
    "ContextPlan",
    "TextTokenizer",
    "Tokenizer",
    "compress",
    "context_release",
    "default_passes",
    "keep_last",
    "mask",
    "once",
    "relevant",
    "shorten",
    "summarize",
    "tiktoken_of",
]
