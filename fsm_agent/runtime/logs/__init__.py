"""The log: a line for each step, and the tracebacks of user code.

It uses standard `logging`, under the name ``fsm_agent``, and keeps no exception alive.
"""
