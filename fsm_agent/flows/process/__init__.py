"""A run of a flow as a process: records, effects, steps, and its members that go on at once.

All that decides, and pure.  Who performs the effects is beside this folder.
"""
