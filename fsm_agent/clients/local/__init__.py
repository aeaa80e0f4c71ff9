"""The embedded model: its file, its server in an OS process of its own, and what it needs to be told.

It needs no key, and after the model was fetched once, no network.
"""
