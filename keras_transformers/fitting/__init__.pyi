# Written by `make stubs`.

from . import confidence as confidence
from . import evaluate as evaluate
from . import fit as fit
from . import mteb_encoder as mteb_encoder
from . import option_names as option_names
from . import predict as predict
from . import table_files as table_files
from . import user_metrics as user_metrics
from . import user_optimizer as user_optimizer
from .confidence import set_confidence as set_confidence
from .evaluate import Scores as Scores
from .evaluate import reports_on as reports_on
from .mteb_encoder import MtebEncoder as MtebEncoder
from keras_transformers.tasks.training import FitOptions as FitOptions
from keras_transformers.tasks.training import Trainer as Trainer
from keras_transformers.tasks.few_shot import FewShotOptions as FewShotOptions
from keras_transformers.tasks.few_shot import fit_head as fit_head
from keras_transformers.tasks.lora import Adapter as Adapter
from keras_transformers.tasks.embedding.searching import bm25_scores as bm25_scores
from keras_transformers.tasks.embedding.searching import main_figure as main_figure
from keras_transformers.tasks.embedding.searching import similarity_scores as similarity_scores
from keras_transformers.tasks.embedding.static import distil_static as distil_static
from keras_transformers.tasks.embedding.static import train_static as train_static
