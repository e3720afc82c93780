"""TAU-bench with two real agents: a customer and an assistant, as `tau:<Name>-v0`."""
