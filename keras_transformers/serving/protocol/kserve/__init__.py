"""Reads and writes the tensors and messages of the Open Inference Protocol (KServe v2).

https://github.com/kserve/open-inference-protocol documents it, and Triton's documentation the
binary tensors that it adds. Nothing here needs TensorFlow: clients share it.
"""
