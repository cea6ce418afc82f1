"""The permissions that readers of stashes in S3 need."""

import re
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.stash.destination import parse_destination
from sleeper.storage.bucket import is_s3_url

# Wildcards in the names of objects.
_TO_ESCAPE = re.compile(r"[*?$]")


def reading_policy(destination: str) -> dict[str, Any]:
    """Returns the IAM policy with which the stashes of a destination can be read.

    Listing has no condition on the prefix: with one, S3 answers 403 instead of 404 for an object
    that does not exist, such as the `_SUCCESS` of a stash that is being written.
    InvalidRequestError if the destination is not in S3.
    """
    url = parse_destination(destination)
    if not is_s3_url(url):
        raise InvalidRequestError(
            f"{destination} has no policy (expected s3://bucket/prefix: other places have "
            "permissions of their own)"
        )
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not bucket:
        raise InvalidRequestError(f"{destination} has no bucket (expected s3://bucket/prefix)")
    below = _TO_ESCAPE.sub(lambda match: f"${{{match[0]}}}", f"{prefix}/" if prefix else "")
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Sid": "StashS3ListBucket",
                "Action": ["s3:ListBucket"],
                "Resource": [f"arn:aws:s3:::{bucket}"],
            },
            {
                "Effect": "Allow",
                "Sid": "StashS3GetObject",
                "Action": ["s3:GetObject"],
                "Resource": [f"arn:aws:s3:::{bucket}/{below}*"],
            },
        ],
    }
