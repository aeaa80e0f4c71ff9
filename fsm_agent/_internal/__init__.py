"""The foundation: frozen values, vectors, lazy imports, and the masking of secrets.

Nothing here knows agents, models or the network.  Nothing here is public: names may change with any version.
"""
