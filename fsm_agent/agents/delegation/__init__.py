"""Agents that work for other agents: as functions of theirs, and as those to whom they hand the dialog over.

`delegate` is what both are to the call that asks; what such a call does with it is in `fsm_agent.lifecycle.delegation`.
"""
