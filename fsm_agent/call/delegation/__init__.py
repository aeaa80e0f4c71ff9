"""Delegation: agents as functions of others, whose calls are processes inside of the call that asks."""
