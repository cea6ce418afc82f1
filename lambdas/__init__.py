"""The instance's functions on AWS: one package each, whose `handler.handler` Lambda calls.

A handler parses, calls one workflow, and says which messages failed. What
all have around that is in `sleeper.workers.lambda_function` and `message_batches`.
"""
