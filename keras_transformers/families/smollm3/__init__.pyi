# Written by `make stubs`.

from . import files as files
from .files import FAMILY as FAMILY
