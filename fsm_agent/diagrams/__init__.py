"""Diagrams of machines and their runs, in Mermaid, DOT, SVG or PNG, made from tables and traces."""

import fsm_agent.call  # before its modules; see CONTRIBUTING.md
from fsm_agent.diagrams.drawing import Diagram, Edge, Node, render, write
from fsm_agent.diagrams.machine_diagrams import call_diagram, trace_diagram, write_call_diagram

__all__ = ["Diagram", "Edge", "Node", "call_diagram", "render", "trace_diagram", "write", "write_call_diagram"]
