"""Implementations of the ports on AWS: DynamoDB, SQS, S3, ECS, EMR, EKS and EventBridge.

Only this package imports boto3. Each gets its client and raises only `sleeper.errors`.

Rules for DynamoDB: an atomic change is one conditional transaction, so that it can be repeated
after a lost response; reads that decide something are consistent; and no request reads more items
than it returns. `properties.deployed` lists the tables' keys.
"""
