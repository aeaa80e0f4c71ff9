"""Run ``python -m fsm_agent.cli``: the same as the command ``fsm-agent``."""

from fsm_agent.cli import main

main()
