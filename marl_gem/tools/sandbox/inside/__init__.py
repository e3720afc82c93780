"""What runs inside a sandbox: code that is sent there, and imports nothing of the rest."""
