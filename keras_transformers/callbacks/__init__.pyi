# Written by `make stubs`.

from keras_transformers.runs.tracking.mlflow import MLflow as MLflow
