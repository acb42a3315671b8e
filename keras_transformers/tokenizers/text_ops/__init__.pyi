# Written by `make stubs`.

from . import core as core
from . import forms as forms
from . import library_pieces as library_pieces
from . import limits as limits
from .forms import Ops as Ops
from .forms import ops_in_use as ops_in_use
from .forms import using_ops as using_ops
