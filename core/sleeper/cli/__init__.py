"""The command line: `sleeper [--instance WHERE] COMMAND`.

A command parses its arguments, calls one function of a workflow's `service`, of `admin` or of
`reports`, and prints results to standard output; progress, notes and errors go to standard
error. With `--output json`, standard output has one JSON object per row and nothing else.

Imports of services are inside the commands, so that a command loads only the libraries that
it uses.
"""
