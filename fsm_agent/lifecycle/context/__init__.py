"""Select what a request shows of the dialog: old results masked, windows, custom processors.

A view is made for one request; the dialog itself stays whole.  Nothing here sends a request to a model.
"""
