"""The agent call: its table, its record, and the interpretation of replies.

Every decision is made here, and it is pure: no clock, no network, no randomness.  What waits is an effect;
`fsm_agent.runtime` performs it.
"""
