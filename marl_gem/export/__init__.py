"""Episodes for other programs.

selection    which episodes and agents
chat         rows of messages and tokens, for trainers of language models
native_calls calls of tools as chat APIs have them
parquet      rows in a Parquet file
inspect_log  logs of inspect_ai
target       the file to write: what may be replaced, and that it appears when it is complete
"""
