"""The foundation: frozen values, vectors, and the masking of secrets.

This package knows no agents, models or network.  It is private: names may change in any release.
"""

__version__ = "0.2.0"
