"""Episodes for other programs.

chat         rows of messages and tokens, for trainers of language models
inspect_log  logs of inspect_ai
target       the file to write: what may be replaced, and that it appears when it is complete
"""
