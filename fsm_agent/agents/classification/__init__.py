"""Classification: agents choose among classes, with a probability for each."""
