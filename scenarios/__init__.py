"""Scenarios: one file or folder a family. They are found through the registry, never imported by name."""
