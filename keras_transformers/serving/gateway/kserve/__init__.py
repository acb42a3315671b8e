"""Answers the requests of the Open Inference Protocol (KServe v2), over REST and gRPC.

https://github.com/kserve/open-inference-protocol documents it. A request's parameter
`signature_name` names a signature of the export; `serving_default` is the default.
"""
