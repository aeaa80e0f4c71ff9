"""The commands ``fsm-agent runs …`` and ``fsm-agent worker``: runs in a store, seen and answered from outside.

`reading` tells what a journal holds without the agent's code, `picture` and `tables` show it, `differences` compares.
"""
