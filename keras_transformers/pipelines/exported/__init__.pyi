# Written by `make stubs`.

from . import form as form
from . import int8 as int8
from . import tf_examples as tf_examples
