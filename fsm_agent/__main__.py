"""What does ``python -m fsm_agent`` do?  The same as the command ``fsm-agent``."""

from fsm_agent.cli import main

if __name__ == "__main__":
    main()
