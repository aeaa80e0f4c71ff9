"""What users write: agents, classes of agents, their configuration, hooks and metrics.

Nothing here decides or waits: agents seed calls, drivers move them.
"""
