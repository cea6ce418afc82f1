"""Adapters of AWS: SQS, DynamoDB, S3's property files, EventBridge.

Only here is boto3 known. Each adapter is given its client and raises only `sleeper.errors`.
"""
