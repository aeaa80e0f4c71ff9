"""Classification: agents that choose among classes, and how likely each is."""
