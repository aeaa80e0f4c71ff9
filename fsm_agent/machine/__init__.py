"""Machines as data: tables of rows, the `transitions` machines built from them, and the processes that they move.

This package knows no agents, models or functions, nor the meaning of a state: the owner of a table defines its states,
its records and its definition.  Nothing here waits: time and the network belong to the drivers of a process.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.machine.journal import Chain as Chain
    from fsm_agent.machine.journal import Entry as Entry
    from fsm_agent.machine.journal import Header as Header
    from fsm_agent.machine.journal import Journal as Journal
    from fsm_agent.machine.journal import fold as fold
    from fsm_agent.machine.journal import header_of as header_of
    from fsm_agent.machine.nesting import Parent as Parent
    from fsm_agent.machine.process import AnyEffect as AnyEffect
    from fsm_agent.machine.process import EffectValue as EffectValue
    from fsm_agent.machine.process import Inner as Inner
    from fsm_agent.machine.process import Process as Process
    from fsm_agent.machine.rows import machine_of as machine_of
    from fsm_agent.machine.rows import row_name as row_name
    from fsm_agent.machine.rows import take_row as take_row
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "journal": "Chain Entry Header Journal fold header_of",
            "nesting": "Parent",
            "process": "AnyEffect EffectValue Inner Process",
            "rows": "machine_of row_name take_row",
        },
    )
