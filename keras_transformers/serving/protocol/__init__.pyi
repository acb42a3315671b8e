# Written by `make stubs`.

from . import errors as errors
from . import events as events
from . import examples as examples
from . import floats as floats
from . import json_examples as json_examples
from . import json_tensors as json_tensors
from . import json_values as json_values
from . import kserve as kserve
from . import messages as messages
from . import pem as pem
from . import request_ids as request_ids
from . import requests as requests
from . import signatures as signatures
from . import tracing as tracing
from .errors import Code as Code
from .errors import RequestError as RequestError
