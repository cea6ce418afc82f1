"""The AWS resources of an instance: one nested stack per capability, composed in `instance`.

`app.py` reads and checks a folder of properties and creates one `Deployment`, which it passes to
every stack. A stack receives resources of other stacks, such as queues, as typed keyword
arguments. The stacks of systems are in `systems`, and get these resources as one `StackContext`.
`sleeper.properties.deployed` defines the names of resources, and permissions per function and task
refer to resources by these names.

Stacks have no behaviour and do not call AWS. No action in a policy has a wildcard. A deployment
deletes an optional stack that is no longer listed.
"""
