"""Run the command ``fsm-agent`` as ``python -m fsm_agent``."""

from fsm_agent.cli import main

if __name__ == "__main__":
    main()
