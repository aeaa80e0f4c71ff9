"""The log: a line for each step, and the tracebacks of user code.

It is standard `logging`, under the name ``fsm_agent``.  Nothing here keeps an exception alive.
"""
