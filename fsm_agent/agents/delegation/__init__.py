"""Agents that work for other agents: as functions, or by taking over the dialog in a handoff.

`delegate` is the interface of both to the call that asks; what such a call does with it is in
`fsm_agent.call.delegation`.
"""
