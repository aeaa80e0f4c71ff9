"""A client whose model is behind a command line, such as that of another agent.

`client` renders the request and reads the answer; `process` runs the command; `output` takes its text apart.
"""
