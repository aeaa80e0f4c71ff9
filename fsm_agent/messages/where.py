"""`Where`: the call that a hook is asked about."""

from __future__ import annotations

from fsm_agent._internal.values import Value


class Where(Value, frozen=True):
    """A call or a run of a flow, for a hook that is shared: the argument of its ``of_call``."""

    call: str  # its id; empty if it ended before it began
    run: str = ""  # of the process that is driven, in a store; empty: it is in none
    agent: str = ""  # the name of its agent or flow; empty for members of a flow
    path: str = ""  # its place in the process that is driven, as in `Inside`; empty: it is that process
