"""Ships the scripts of recipes/ in the package, for `keras-transformers train`; see setup.cfg."""

from setuptools import find_packages, setup

RECIPES = "keras_transformers.recipes"

setup(
    packages=[*find_packages(include=["keras_transformers*"]), RECIPES, f"{RECIPES}.elmo"],
    package_dir={RECIPES: "recipes"},
)
