"""Stores: where runs are kept as journals, and conversations as chains of runs; who may drive a run, and when.

Stores know lines, leases and letters, and no agents: what a line means is the journal's to say
(`fsm_agent.machine.journal`).
"""
