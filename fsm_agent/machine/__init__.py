"""Machines as data: tables of rows, the `transitions` machines built from them, and the processes that they move.

This package knows no agents, models or functions, nor the meaning of a state: the owner of a table defines its states,
its records and its definition.  Nothing here waits: time and the network belong to the drivers of a process.
"""
