"""Move a machine: the drivers, the activities that perform effects, and the runner of functions.

Two drivers, sync and asyncio, share one loop (`reconciler`, whose head is the theory of operation).  Nothing here
decides what happens next: that is a row of a table.
"""
