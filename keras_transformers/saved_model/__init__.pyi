# Written by `make stubs`.

from . import card as card
from . import checks as checks
from . import description as description
from . import examples as examples
from . import exporting as exporting
from . import file_prediction as file_prediction
from . import graphs as graphs
from . import litert as litert
from . import manifest as manifest
from . import metadata as metadata
from . import models_config as models_config
from . import prediction as prediction
from . import publishing as publishing
from . import serving_config as serving_config
from . import storage as storage
from . import text_rows as text_rows
from . import versions as versions
from . import warm_up as warm_up
from .card import write_card as write_card
from .description import describe as describe
from .exporting import export as export
from .file_prediction import FilesReport as FilesReport
from .file_prediction import predict_files as predict_files
from .prediction import Predictor as Predictor
from .prediction import predict as predict
from .text_rows import TextRows as TextRows
