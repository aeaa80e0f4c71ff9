"""Machines as data: tables of rows, the `transitions` machine that is built of them, and processes that they move.

Nothing here knows agents, models or functions, nor the meaning of a state; the owner of a table names its states, its
records and its definition.  Nothing here waits: time and the network are for the drivers of a process.
"""
