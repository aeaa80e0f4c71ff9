"""Prompts: their templates, parsers, dialogs, and folders of prompt files.

`rendering` prints values and types.  All of it is pure, except that templates are read from files.  Nothing here knows
a provider or a state.
"""
