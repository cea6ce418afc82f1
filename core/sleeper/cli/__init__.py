"""The command line: `sleeper [--instance WHERE] <noun> <verb>`.

One module per noun. A command parses its arguments, calls one function of a workflow's
`service`, of `admin` or of `reports`, and prints results to standard output, and progress,
notes and errors to standard error. The exit status is 0 for success, 1 for a failure or a
refusal, 2 for a command line that does not parse, and 130 for an interrupt.

With `--output json`, standard output receives one row per line and nothing else. An error is
one line, in lower case. A command loads no data library that it does not need, so services
are imported inside the commands.
"""
