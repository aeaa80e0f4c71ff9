"""Prompts: their templates, parsers, dialogs, and folders of prompt files.

All of it is pure, except the library, which reads files.  Nothing here knows a provider or a state.
"""
