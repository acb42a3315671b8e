# Written by `make stubs`.

from . import mlflow as mlflow
from . import tracker as tracker
from .mlflow import MLflow as MLflow
