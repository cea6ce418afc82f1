"""Opens streams of AWS."""

from sleeper.adjunct.inputs.log import LogInput, StreamName


def open_stream(kind: str, name: StreamName) -> LogInput:
    """Opens a stream of AWS with the credentials of this process.

    `kind` is `kinesis` or `dynamodb`. InvalidRequestError if an option is invalid.
    """
    if kind == "kinesis":
        from sleeper.adjunct.aws.kinesis_stream import open_kinesis

        return open_kinesis(name)
    from sleeper.adjunct.aws.dynamodb_stream import open_dynamodb

    return open_dynamodb(name)
