"""Parts of data files in S3 that a read needs, copied to local disk."""
