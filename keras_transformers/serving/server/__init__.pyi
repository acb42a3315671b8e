# Written by `make stubs`.

from . import backend as backend
from . import batching as batching
from . import cancellation as cancellation
from . import connections as connections
from . import decoding as decoding
from . import decoding_threads as decoding_threads
from . import engine as engine
from . import grpc as grpc
from . import hosts as hosts
from . import http as http
from . import local as local
from . import logs as logs
from . import metrics as metrics
from . import models as models
from . import rest as rest
from . import saved_models as saved_models
from . import settings as settings
from . import statuses as statuses
from . import steps as steps
from . import tls as tls
from . import warm_up as warm_up
from .batching import BatchingOptions as BatchingOptions
from .engine import Limits as Limits
from .local import Server as Server
from .settings import ModelSettings as ModelSettings
from .tls import Tls as Tls
