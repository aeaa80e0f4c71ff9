"""The bench of the command line: what a call costs on this machine, beside the same work by hand."""
