"""The axes that were asked to change: what the trace assumed of them, and whether that is more than was asked."""
