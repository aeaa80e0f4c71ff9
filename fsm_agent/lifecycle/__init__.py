"""The agent call: its table, its record, and what is read into a reply.

Everything that decides is here, and it is pure: no clock, no network, no randomness.  What waits is an effect; who
performs it is in `fsm_agent.runtime`.
"""
