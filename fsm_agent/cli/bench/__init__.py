"""The bench of the command line: the cost of a call on this machine, beside the same work by hand."""
