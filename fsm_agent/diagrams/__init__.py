"""Draw machines and their runs: Mermaid, DOT, SVG, PNG.

Diagrams are made of tables and traces, never drawn by hand.  Nothing here moves a machine.
"""

from fsm_agent.diagrams.diagram import call_diagram, trace_diagram, write_call_diagram
from fsm_agent.diagrams.drawing import Box, Diagram, Edge, Node, render, write

__all__ = [
    "Box",
    "Diagram",
    "Edge",
    "Node",
    "call_diagram",
    "render",
    "trace_diagram",
    "write",
    "write_call_diagram",
]
