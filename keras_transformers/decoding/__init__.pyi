# Written by `make stubs`.

from . import beam as beam
from . import constraints as constraints
from . import greedy as greedy
from . import largest_logits as largest_logits
from . import opennmt as opennmt
from . import rows as rows
from . import sampling as sampling
from . import single_path as single_path
from . import step as step
from .beam import BeamStep as BeamStep
from .beam import beam_search as beam_search
from .greedy import greedy_search as greedy_search
from .rows import sample_rows as sample_rows
from .rows import steps as steps
from .sampling import sample as sample
from .single_path import Step as Step
from .step import Cache as Cache
from .step import Hypotheses as Hypotheses
from .step import StepFunction as StepFunction
