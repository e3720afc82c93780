"""Who answers during rollouts, and how new weights reach it.

base        the protocols
in_process  the model in this process
"""
