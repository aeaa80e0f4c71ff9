"""The commands ``fsm-agent providers …`` and ``fsm-agent models …``."""
