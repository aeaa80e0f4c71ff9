"""The commands ``fsm-agent agents …``, and the project that ``new`` writes."""
