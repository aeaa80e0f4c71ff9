"""The foundation: frozen values, vectors, lazy imports, and the masking of secrets.

This package knows no agents, models or network.  It is private: names may change in any release.
"""
