"""Adapters of AWS: DynamoDB, SQS, S3's property files, EventBridge.

Only here is boto3 known. Each adapter is given its client and raises only `sleeper.errors`:
what a service answers is translated where it is called (`errors`).

What must hold on DynamoDB: every change that must be whole is one transaction of
DynamoDB, on conditions, so that it may be tried again after an answer was lost; every read
that a decision rests on is consistent; and no request scans more than it answers with.
`dynamo_tables` says how each table is keyed.
"""
