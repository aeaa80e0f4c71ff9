"""Agents as users write them: classes, configuration, hooks and metrics.

Nothing here decides or waits: agents seed calls, drivers move them.
"""
