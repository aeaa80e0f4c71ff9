"""What only measures: the cost of a call beside the same work by hand, and beside peers."""
