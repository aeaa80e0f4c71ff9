"""Clients: what asks a model for a reply.

Everything here implements the `Client` protocol or serves a client that does.  Nothing here decides how often a model
is asked or what a reply means: that is the machine's.
"""
