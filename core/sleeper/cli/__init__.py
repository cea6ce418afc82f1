"""The command line: `sleeper [--instance WHERE] <noun> <verb>`.

One module per noun. A command parses its arguments, calls `sleeper.wiring`, and prints:
results to standard output, progress, notes and errors to standard error. Exit status is
0 for done, 1 for failed, 2 for wrong usage.
"""
