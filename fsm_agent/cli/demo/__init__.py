"""The demo of the command line: five parts on the embedded model."""
