"""The package's foundation: immutable values, vectors, and the masking of secrets.

This package knows nothing about agents, models or networks.  It is private, so names in it may change in any release.
"""

__version__ = "0.2.0"
