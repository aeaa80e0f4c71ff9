"""Reports: what the result of a call says about its way there.

Pure: they are part of its record, or derived from its record and trace.
"""
