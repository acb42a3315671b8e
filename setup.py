"""Ships the scripts of recipes/ in the wheel, for `keras-transformers train`; see setup.cfg."""

from setuptools import setup
from setuptools.command.build_py import build_py

RECIPES = "keras_transformers.recipes"


class BuildWithRecipes(build_py):
    """Builds the package with recipes/ in it. An editable install has that folder beside it."""

    def finalize_options(self) -> None:
        """Adds the recipes to what is built, so that the layout of the checkout stays plain."""
        super().finalize_options()
        self.packages = [*self.packages, RECIPES, f"{RECIPES}.elmo"]
        self.package_dir[RECIPES] = "recipes"


setup(cmdclass={"build_py": BuildWithRecipes})
