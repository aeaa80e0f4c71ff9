"""Costs: the tokens and the money that a call may use, agents inside of it included.

All of it is pure: the cost of a reply is in its `Usage`, where the driver put it.
"""
