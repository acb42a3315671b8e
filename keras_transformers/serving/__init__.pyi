# Written by `make stubs`.

from . import client as client
from . import gateway as gateway
from . import protocol as protocol
from . import server as server
from .client.asking import Client as Client
from .gateway.process import Gateway as Gateway
from .protocol.errors import Code as Code
from .protocol.errors import RequestError as RequestError
from .server.keys import ApiKeys as ApiKeys
from .server.batching import BatchingOptions as BatchingOptions
from .server.limits import Limits as Limits
from .server.settings import ModelSettings as ModelSettings
from .server.local import Server as Server
from .server.tls import Tls as Tls
