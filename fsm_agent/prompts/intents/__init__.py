"""Intents: what a model says in tags, from one declaration that is the prompt's text, the type and the parser.

`frame` wraps what users say and reads one member of an enumeration; `declared` makes a whole prompt of an enumeration.
`action` declares tags with attributes and inner text, `action_set` reads, replaces and removes them.  `quoting` keeps
the text of users inside its frame, and `framed_prompt` does so for the templates of all of these.
"""
