"""What everything stands on: frozen values, vectors, lazy imports, and what must never be shown.

Nothing here knows agents, models or the network.  Nothing here is public: names may change with any version.
"""
