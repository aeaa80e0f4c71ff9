"""Draw machines and their runs: Mermaid, DOT, SVG, PNG.

Diagrams are made of tables and traces, never drawn by hand.  Nothing here moves a machine.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.diagrams.diagram import lifecycle as lifecycle
    from fsm_agent.diagrams.diagram import trace_diagram as trace_diagram
    from fsm_agent.diagrams.diagram import write_lifecycle as write_lifecycle
    from fsm_agent.diagrams.drawing import Box as Box
    from fsm_agent.diagrams.drawing import Diagram as Diagram
    from fsm_agent.diagrams.drawing import Edge as Edge
    from fsm_agent.diagrams.drawing import Node as Node
    from fsm_agent.diagrams.drawing import render as render
    from fsm_agent.diagrams.drawing import write as write
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "diagram": "lifecycle trace_diagram write_lifecycle",
            "drawing": "Box Diagram Edge Node render write",
        },
    )
