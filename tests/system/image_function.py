"""A function's container: `python -m tests.system.image_function NAME`.

Takes an event a line, answers each with what the handler returned. What the handler says goes to
standard error.
"""

import importlib
import json
import sys
from types import SimpleNamespace


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    handler = importlib.import_module(f"lambdas.{sys.argv[1]}.handler").handler
    context = SimpleNamespace(
        function_name=sys.argv[1],
        memory_limit_in_mb=2048,
        invoked_function_arn=f"arn:aws:lambda:us-east-1:000000000000:function:{sys.argv[1]}",
        aws_request_id="request",
    )
    for line in sys.stdin:
        print(json.dumps(handler(json.loads(line), context)), file=answers, flush=True)


main()
