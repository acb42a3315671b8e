"""The `keras-transformers` command: parses, calls, prints. One file per group of commands.

Each command is a frozen dataclass: its fields are the arguments, their comments the help texts, and
`run` does the work and returns the exit status. A command imports what it needs when it runs, so
`--help` is fast.
"""
