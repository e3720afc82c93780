"""`python -m marl_gem.cli`: the same as `marl-gem`."""

from marl_gem.cli import main

main()
