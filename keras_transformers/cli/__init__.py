"""The `keras-transformers` command: parses, calls, prints. One file per group of commands.

Each command is a frozen dataclass: its fields are the arguments, their comments the help, and `run`
does the work and returns the exit status. What a command needs it imports when it runs, so that
`--help` takes no seconds.
"""
