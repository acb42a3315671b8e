"""Asks TF Serving or local servers: over REST or gRPC, each with replicas."""

__all__: list[str] = []
