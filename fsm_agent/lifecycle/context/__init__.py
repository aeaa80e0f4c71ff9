"""What of a dialog a request shows: old results masked, windows, processors of one's own.

A view is made for one request; the dialog itself stays whole.  Nothing here asks a model.
"""
