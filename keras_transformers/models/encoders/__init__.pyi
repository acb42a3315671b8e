# Written by `make stubs`.

from . import albert as albert
from . import bert as bert
from . import distilbert as distilbert
from . import electra as electra
from . import modern_bert as modern_bert
from . import mpnet as mpnet
from . import roberta as roberta
from . import shrinking as shrinking
from . import stack as stack
from . import xlm_roberta as xlm_roberta
from .shrinking import shrink_bert as shrink_bert
