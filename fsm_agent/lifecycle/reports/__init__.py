"""Reports on how a call came to its result.

They are part of its record, or derived from its record and trace by pure functions.
"""
