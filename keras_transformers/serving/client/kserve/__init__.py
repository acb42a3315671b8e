"""Asks servers that speak the Open Inference Protocol (KServe v2), such as OVMS and Triton.

Our own metadata have all signatures and the task. That of other servers describes one signature,
which becomes `serving_default`; the task is then found by its outputs.
"""
