"""Lets the tests in the folders here import recipe_runs."""
