"""Configurations of agents: their keys, the files they are read from, and the agents made from them.

`agent_config` has the keys.  What is wrong with a configuration names its file, line, key and remedy: see `source`.
"""
