"""The storage of export queues in DynamoDB and S3."""
