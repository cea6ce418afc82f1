"""What an instance is made of on AWS: a nested stack for each concern, composed in `instance`.

`app.py` reads and checks a folder of properties and makes one `Deployment` of it, which
every stack is given. What a stack needs of another, such as a queue, is passed as a typed
keyword argument. Names of resources are those of `sleeper.properties.deployed` and
`deployed_stores`; permissions are written by hand, per function and task, and name resources
by these names.

What must hold: no behaviour here; nothing calls AWS; no action in a policy has a wildcard;
an optional stack that is taken off the list is taken away by the next deployment.
"""
