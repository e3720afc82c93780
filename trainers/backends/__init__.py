"""What computes gradients and takes steps.

base    the protocol
local   one model in this process, on one device
frozen  weights that do not learn, on the device only while they are needed
"""
