"""Costs: the tokens and the money that a call may use, agents inside of it included.

Pure: what a reply costs is in its `Usage`, as whoever performed the request found it.
"""
