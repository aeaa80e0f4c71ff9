"""Clients that send requests to models: over HTTP, with fallbacks, under a rate limit, from a recording.

`http` holds the connections, `local` the embedded model.  A client sends each request once; the machine decides about
retries.
"""
