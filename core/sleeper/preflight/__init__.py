"""Checks before a deployment to AWS, so that it does not fail in the middle.

A *finding* is what one check has to say: an *error* makes the deployment or a part of the instance
fail, a *warning* is a limit that an instance can meet later. `folder` checks what the properties
say, `tools` looks at this machine, and `account` asks the account and the region. `service` runs
all of them. The synthesis of templates runs the first.
"""
