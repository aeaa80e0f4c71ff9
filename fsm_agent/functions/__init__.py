"""Functions for models to call: their signatures, schemas and policies, toolsets and versions.

A function is described and its arguments are checked here.  Nothing here runs one: `fsm_agent.runtime` does.
"""
