"""Tools: how calls are written and read."""
