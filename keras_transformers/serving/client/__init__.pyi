# Written by `make stubs`.

from . import asking as asking
from . import grpc as grpc
from . import grpc_messages as grpc_messages
from . import kserve as kserve
from . import rest as rest
from . import rest_messages as rest_messages
from . import target as target
from . import tls as tls
from . import transport as transport
from .asking import Client as Client
