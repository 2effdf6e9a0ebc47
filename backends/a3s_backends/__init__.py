"""Backends for a3s-actors, one folder a technology. Hosts import and inject them."""
