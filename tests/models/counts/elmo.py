"""ELMo's counts; test_elmo.py counts the parts."""

COUNTS = {"elmo_original": 93_600_864, "elmo_medium": 28_027_744, "elmo_small": 13_593_312}
BUILT = {"elmo_small": {}}
PAPERS = ("Peters",)
