"""Any machine, and any run of it, as a picture: Mermaid, DOT, SVG, PNG.

Diagrams are made of tables and traces, never drawn by hand.  Nothing here moves a machine.
"""
