"""What is asked, and how an answer becomes a value: prompts, dialogs, templates, parsers, and folders of prompts.

All of it is pure, but for the library, which reads files.  Nothing here knows a provider or a state.
"""
