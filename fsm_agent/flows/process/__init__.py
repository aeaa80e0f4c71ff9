"""A run of a flow as a process: records, effects, steps, and its members that go on at once.

This package decides, and is pure.  What performs the effects is in `fsm_agent.flows.activities`.
"""
