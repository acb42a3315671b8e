# Written by `make stubs`.

from . import files as files
from . import model as model
from .files import FAMILY as FAMILY
