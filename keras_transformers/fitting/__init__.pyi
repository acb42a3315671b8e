# Written by `make stubs`.

from . import evaluate as evaluate
from . import fit as fit
from . import job as job
from . import jobs as jobs
from . import labels as labels
from . import lora as lora
from . import option_names as option_names
from . import searching as searching
from . import source as source
from . import texts as texts
from . import user_optimizer as user_optimizer
from .job import FitOptions as FitOptions
from .job import Job as Job
from .job import job_of as job_of
from .lora import Adapter as Adapter
from .searching import bm25_scores as bm25_scores
from .searching import main_figure as main_figure
from .searching import similarity_scores as similarity_scores
