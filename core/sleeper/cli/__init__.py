"""The command line: `sleeper [--instance WHERE] <noun> <verb>`.

One module per noun. A command parses its arguments, calls one function of
`sleeper.wiring`, and prints: results to standard output, progress, notes and errors to
standard error. Exit status is 0 for done, 1 for failed (what the product refuses
included), 2 for a command line that cannot be parsed, 130 for an interrupt.

What must hold: with `--output json` nothing but one row a line goes to standard output;
an error is one line, in lower case; and a command loads no data library that it does
not need, so `sleeper.wiring` is imported inside the commands.
"""
