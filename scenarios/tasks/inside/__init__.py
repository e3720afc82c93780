"""What runs inside worker processes: code that is sent there, and imports nothing of the rest."""
