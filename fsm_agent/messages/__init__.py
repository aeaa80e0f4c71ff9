"""Messages with their parts, replies, events, transcripts, and the tools that providers run.

All of it is data, frozen and without behaviour that could fail.  Nothing here knows its origin or its purpose.
"""
