"""Scenarios: one file or folder per family. The registry finds them; the core imports none by name."""
