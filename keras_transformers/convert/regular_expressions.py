"""Matches names against regular expressions from files, which may be hostile.

Python's `re` needs exponential time for some patterns and has no time limit. TensorFlow's engine,
RE2, needs linear time and bounded memory; it lacks lookarounds and backreferences.
"""

_LONGEST = 1000  # characters


def matching(pattern: str, names: list[str]) -> list[str]:
    """Returns the names that a regular expression matches from start to end.

    Raises:
        ValueError: the pattern is too long, or RE2 cannot read it.
    """
    import tensorflow as tf

    if len(pattern) > _LONGEST:
        raise ValueError(f"the pattern {pattern!r:.80} has more than {_LONGEST} characters")
    try:
        with tf.device("CPU:0"):
            matches = tf.strings.regex_full_match(tf.constant(names, tf.string), pattern).numpy()
    except (UnicodeError, tf.errors.InvalidArgumentError) as error:
        raise ValueError(
            f"{pattern!r:.80} is not a regular expression that RE2 reads; it has no lookarounds "
            "and backreferences"
        ) from error
    return [name for name, is_match in zip(names, matches, strict=True) if is_match]
