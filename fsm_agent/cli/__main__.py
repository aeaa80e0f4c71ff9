"""What ``python -m fsm_agent.cli`` does: the same as the command ``fsm-agent``."""

from fsm_agent.cli import main

main()
