"""What moves a machine: the drivers, who performs each effect, and how a function is run.

Two drivers, sync and asyncio, share one loop (`reconciler`, whose head is the theory of operation).  Nothing here
decides what happens next: that is a row of a table.
"""
