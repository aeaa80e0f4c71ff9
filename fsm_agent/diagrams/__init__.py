"""Draw machines and their runs: Mermaid, DOT, SVG, PNG.

Diagrams are made of tables and traces, never drawn by hand.  Nothing here moves a machine.
"""
