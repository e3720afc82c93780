"""Episodes for other programs: chat rows for trainers of language models, and logs for inspect.

chat        JSONL, a row for each agent and episode: messages, and tokens with a loss mask
inspect_log inspect_ai's .eval file
whole       files that are written whole or not at all
"""
