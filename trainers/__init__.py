"""Trainers: from episodes to a better policy."""
