"""The embedded model: its file, and its server in a child process.

It needs no key, and no network once its file has been fetched.
"""
